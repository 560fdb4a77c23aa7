/* Setting the defaults of the table of keys. */
#include "settings/keys.h"

enum status settings_defaults(struct settings *s, int64_t seq_len)
{
    *s = (struct settings){0};
    for (int i = 0; i < settings_n_keys; i++)
        if (settings_keys[i].value)
            TRY(settings_key_set(&settings_keys[i], settings_keys[i].name, settings_keys[i].value, s));
    s->plan.seq_len = seq_len;
    return OK;
}

enum status plan_request_defaults(struct plan_request *r, int64_t seq_len)
{
    struct settings s;
    TRY(settings_defaults(&s, seq_len));
    *r = s.plan;
    return OK;
}
