/* `ltrain report`: reading its arguments. Private to src/cli. */
#ifndef LTRAIN_CLI_REPORT_H
#define LTRAIN_CLI_REPORT_H

/* Runs the command with the arguments behind its name. Returns the exit status. */
int report_command(int argc, char **argv);

#endif
