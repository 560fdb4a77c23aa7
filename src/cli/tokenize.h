/* `ltrain tokenize`. */
#ifndef LTRAIN_CLI_TOKENIZE_H
#define LTRAIN_CLI_TOKENIZE_H

/* The arguments behind the command's name; the exit status. */
int tokenize_command(int argc, char **argv);

#endif
