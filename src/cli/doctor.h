/* `ltrain doctor`: reading its arguments. */
#ifndef LTRAIN_CLI_DOCTOR_H
#define LTRAIN_CLI_DOCTOR_H

/* Runs the command and returns the exit status. argv: the arguments behind the command's name. */
int doctor_command(int argc, char **argv);

#endif
