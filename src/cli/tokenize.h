/* `ltrain tokenize`. */
#ifndef LTRAIN_CLI_TOKENIZE_H
#define LTRAIN_CLI_TOKENIZE_H

/* Runs the command with the arguments behind its name; returns the exit status. */
int tokenize_command(int argc, char **argv);

#endif
