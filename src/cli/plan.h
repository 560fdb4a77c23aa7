/* `ltrain plan`. */
#ifndef LTRAIN_CLI_PLAN_H
#define LTRAIN_CLI_PLAN_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Plans and prints the plan as a table or JSON, with advice, and as a picture. ERR_NOFIT: it does not fit. */
enum status plan_command(struct settings *s, struct comm *c);

#endif
