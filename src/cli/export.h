/* `ltrain export`. */
#ifndef LTRAIN_CLI_EXPORT_H
#define LTRAIN_CLI_EXPORT_H

/* Returns the exit status. argv: what follows the command's name. */
int export_command(int argc, char **argv);

#endif
