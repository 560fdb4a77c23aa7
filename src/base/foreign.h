/* Places of others' shared libraries, which are opened when needed: where the loader looks, toolkits, Python's packages. */
#ifndef LTRAIN_BASE_FOREIGN_H
#define LTRAIN_BASE_FOREIGN_H

#define FOREIGN_CUDA "/usr/local/cuda" /* toolkit of CUDA's libraries, beside CUDA_HOME */

struct foreign_library {
    const char *name;     /* file name, as libcublasLt.so.13 */
    const char *wheel[2]; /* directories of Python's packages that have the file, newest first; NULL: none */
    const char *package;  /* package name, for messages */
};

extern const struct foreign_library foreign_cublaslt, foreign_nccl;

/* Searches the places of a library, beyond the loader's own: directories of the toolkit and of CUDA_HOME (toolkit NULL: neither),
 * and Python's packages (the active environment's, PYTHONPATH's, those of the python3 on PATH, the user's, the system's). Calls
 * visit(user, path) for each existing file until it returns nonzero. */
int foreign_search(const struct foreign_library *l, const char *toolkit, int (*visit)(void *user, const char *path), void *user);
/* Writes the path of the file that the loader takes, or else of the first that is found. Returns 0 if there is none. */
int foreign_find(const struct foreign_library *l, const char *toolkit, char path[4096]);

#endif
