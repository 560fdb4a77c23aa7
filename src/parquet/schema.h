/* The columns of a Parquet file as a tree of structs, lists, maps and values. Private to this folder. */
#ifndef LTRAIN_PARQUET_SCHEMA_H
#define LTRAIN_PARQUET_SCHEMA_H

#include "parquet/footer.h"

enum node_kind { NODE_VALUE, NODE_STRUCT, NODE_LIST, NODE_MAP };

/* A value of each row, or of each element or member around it.
 *
 * Files have for each value a definition level, the number of optional and repeated things around it that are there, and a
 * repetition level, the depth of the list of which the value begins another element (Dremel, Melnik et al. 2010). */
struct node {
    enum node_kind kind;
    const char *name; /* name of the member of the struct around; lives as long as the footer */
    int is_optional;  /* 1: the value may be null */
    int level;        /* definition level from which on the value is not null */
    int depth;        /* lists and maps: repetition level of their further elements; elements are there from level + 1 on */
    int64_t first_leaf, leaves;           /* leaves below */
    struct node *child, *next;            /* first member, or the element, or a map's key with its value; the next member */
    const struct footer_element *element; /* NODE_VALUE: stored type */
    int is_left_out;    /* members of the rows: 1: some value below is of a type that is not read, or nobody asks for it */
    const char *unread; /* type of a value that is not read, as "a timestamp"; NULL: it is read */
};

struct schema {
    struct node *nodes; /* nodes[0]: the rows, a struct */
    int64_t n;
};

/* Makes the tree; it points into the footer. ERR_INVALID names path. */
enum status schema_make(const char *path, const struct footer *f, struct schema *out);
void schema_free(struct schema *s);
/* Returns the type of a value below the node that is not read, NULL if all are read. name: gets the value's name from the node
 * on, as "messages.time", cut to its room. */
const char *schema_unread(const struct node *node, char *name, size_t bytes);

#endif
