/* Requests that the I/O lanes keep in flight; a drive's rate depends on the bytes in flight. */
#ifndef LTRAIN_PROGRAM_DRIVES_H
#define LTRAIN_PROGRAM_DRIVES_H

#define DRIVE_BLOCK (1 << 20) /* most bytes of a request */
#define DRIVE_DEPTH 16        /* most requests in flight on each lane */

#endif
