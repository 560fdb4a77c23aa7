/* Finding a tensor by the names that files may have for it. */
#include "engine/weights_name.h"

#include "model/model.h"

const char *weights_name(const struct st_file *f, const char *name)
{
    const char *own = st_own_name(f, name);
    char other[WRAPPED_NAME];
    for (int i = 0, has = 1; !own && has >= 0; i++)
        if ((has = model_other_name(name, i, other)) > 0)
            own = st_own_name(f, other);
    return own ? own : name;
}
