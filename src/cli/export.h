/* `ltrain export`. */
#ifndef LTRAIN_CLI_EXPORT_H
#define LTRAIN_CLI_EXPORT_H

/* Runs the command and returns the exit status. argv: the arguments behind the command's name. */
int export_command(int argc, char **argv);

#endif
