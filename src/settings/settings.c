/* Defaults of the table of keys, and the mesh that --sp asks for. */
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

struct mesh settings_sp_mesh(enum sp_kind sp)
{
    struct mesh m = mesh_uniform(AUTO);
    if (sp == SP_NONE || sp == SP_RING)
        m.degree[MESH_ULYSSES] = 1;
    if (sp == SP_NONE || sp == SP_ULYSSES)
        m.degree[MESH_RING] = 1;
    return m;
}
