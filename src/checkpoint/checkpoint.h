/* Checkpoints: named tensors as global element ranges, never one run's layout. Any placement, mesh, ZeRO stage and number of ranks
 * can load them.
 *
 * All ranks of a session write and read them together. The run's directory is on a file system that all ranks see, at the path that
 * each is given.
 *
 * RUN/checkpoints/step-000100/
 *   model.safetensors, config.json   parameters under Hugging Face names, in the run's dtype; with adapters only trained ones
 *   optimizer.safetensors            "master.NAME" (bf16 runs), "m.NAME", "v.NAME" in fp32, of trained parameters only
 *   digests.txt                      a digest of each tensor, the same whichever ranks saved it
 *   config.yaml, data.txt            the run's settings and the data it was trained on, needed to go on
 *   manifest.json                    step, cursor, updates, seed, numerics key, model facts, ancestors, every file's size and hash (of
 *                                    segments: files.h), its own xxh3
 * RUN/checkpoints/latest             name of the newest whole checkpoint
 *
 * Tensors have all rows of learned positions. Rows that the run does not use are copied, with their moments, from the state's origin
 * (session->origin), which must still be there: initial values, weights, or the checkpoint loaded or saved last.
 *
 * Protocol: kill -9 of any rank at any moment leaves the newest whole checkpoint loadable. All ranks write and sync everything in
 * step-N.partial. Once all have agreed, rank 0 writes the manifest and renames the directory to step-N. `latest` is replaced by
 * write, sync, rename. Then all but the last `keep` checkpoints, and dead directories, are removed. Names, phases and invariants:
 * checkpoint.c.
 *
 * Unless said otherwise, all ranks of the session's communicator call each function with the same arguments (the paths may differ in
 * text) and get the same status; the message names the rank that failed. */
#ifndef LTRAIN_CHECKPOINT_CHECKPOINT_H
#define LTRAIN_CHECKPOINT_CHECKPOINT_H

#include "engine/session.h"

struct checkpoint_info {
    int64_t step;    /* steps done */
    uint64_t cursor; /* training sequences taken */
    int64_t updates; /* optimizer steps done, without skipped ones */
    uint64_t seed;
    char numerics[512]; /* the numerics key */
};

/* Settings and data of a run; only rank 0's are used. NULL: an empty text. */
struct checkpoint_texts {
    char *settings, *data;
};

/* Saves the session's state. No update may be pending (flush first), and nothing may be running. keep >= 1; texts may be NULL.
 * Memory: one group and a few hundred KiB.
 *
 * On failure the former checkpoints are as they were. ERR_DIVERGED names a tensor with NaN or infinite elements; ERR_IO names the
 * file that could not be written; ERR_INVALID: a rank does not see the directory. Messages about an origin that is gone, changed
 * or damaged name the origin. */
enum status checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info,
                            const struct checkpoint_texts *texts, int keep);
/* Checks, before any training, that all ranks see the run's directory, which rank 0 has made. ERR_INVALID: one does not. */
enum status checkpoint_compare_place(struct comm *c, const char *run);
/* Finds the directory of a run's newest whole checkpoint (`path`); every file is read and its hash checked. The choice is the one
 * that `latest` names. If `latest` or that checkpoint is missing or damaged, the newest other one is taken and *note says so
 * (else "").
 *
 * ERR_INVALID: there is none. All ranks find the same. */
enum status checkpoint_find(struct comm *c, const char *run, char *path, int path_size, struct checkpoint_info *info, char *note,
                            int note_size);
/* Finds the newest checkpoint of a run with fewer steps than `step`, among the one that `latest` names and its ancestors, so that
 * the steps that led to the run's present state follow it. Files are not hashed. path: "" if there is none. One rank only. */
enum status checkpoint_before(const char *run, int64_t step, char *path, int path_size);
/* Reads what a checkpoint's manifest says, without hashing its files. */
enum status checkpoint_look(struct comm *c, const char *path, struct checkpoint_info *out);
/* Result of comparing the tensors of two checkpoints. */
struct checkpoint_difference {
    int64_t tensors, differ;   /* tensors of either; those that differ, or that only one has */
    int64_t elements, unequal; /* elements of tensors that both have in one form; those with other bits */
    char first[1024];          /* sentence about the first difference; "": none */
};
/* Compares two checkpoints of any ranks, tensor by tensor and byte by byte (one process only). Where a tensor differs, the sentence
 * says whose bytes are not those that were saved, by the digests. ERR_CORRUPT, ERR_IO: a file cannot be read. */
enum status checkpoint_compare(const char *a, const char *b, struct checkpoint_difference *out);
/* Reads the texts of a checkpoint that was found, to be freed; any rank may call it alone. */
enum status checkpoint_read_texts(const char *path, struct checkpoint_texts *out);
/* Finds the newest checkpoint with a config.json, preferring the one that `latest` names; its content is not checked. Any rank
 * may call it alone. ERR_INVALID: there is none. */
enum status checkpoint_newest(const char *run, char *path, int path_size);
/* Loads parameters, masters and moments into the session's homes, every rank its own, whatever the placement, ranks and dtype of
 * both sides. Values come from masters, or from parameters that have none (fp32 runs, frozen ones).
 *
 * Checks come first: every file's size and hash (ERR_CORRUPT names the file); then configuration, names, shapes and frozen
 * parameters (ERR_INVALID names the first difference). Values that are not finite: ERR_INVALID names the tensor. */
enum status checkpoint_load(struct session *s, const char *path);
enum { EXPORT_ONE_FILE = 0 };                   /* value of checkpoint_export's `most`: always one file */
#define EXPORT_FILE_BYTES ((int64_t)5000000000) /* the size at which transformers cuts models */
#define FACTS_FILE "ltrain_run.json"
#define CARD_FILE "README.md"
/* Texts beside an exported model; each may be NULL. Only rank 0's are used. */
struct export_texts {
    /* directory with the model's original config.json, whose keys are kept (a preset has none), and a tokenizer's files, which
     * are copied */
    const char *like;
    const char *facts, *card; /* the texts of FACTS_FILE and CARD_FILE */
};
/* Writes DIR/config.json and DIR/model.safetensors as transformers reads them. A model beyond `most` bytes becomes several files
 * and their index.
 *
 * Creates DIR (its parent exists); whole files are renamed into place. texts may be NULL. ERR_DIVERGED as for checkpoint_save:
 * the former files stay. */
enum status checkpoint_export(struct session *s, const char *dir, const struct export_texts *texts, int64_t most);
/* Copies the files that exports need, config.json and the tokenizer's, from a model's directory to another one (one rank only).
 * Former files of these names are removed. The file of tensors beside the model is copied, too, if `from` has it.
 *
 * tokenizer: directory or file of another tokenizer, whose files are copied instead; "": none are; NULL: the model's own. */
enum status checkpoint_keep_texts(const char *from, const char *tokenizer, const char *to);
/* Replaces only the tokenizer's files in a directory as checkpoint_keep_texts makes; the directory is made if absent. */
enum status checkpoint_keep_tokenizer(const char *tokenizer, const char *to);
/* Replaces only the chat template, by a chat_template.jinja, which takes precedence over templates in other files. tools: the
 * template of conversations with tools; NULL: `text` serves these, too. */
enum status checkpoint_keep_template(const char *text, const char *tools, const char *to);
/* Replaces only generation_config.json. */
enum status checkpoint_keep_generation(const char *text, const char *to);
/* Writes the tensors beside the model (weights_others) into one file of directory `to` (one rank only). Does nothing if there are
 * none. */
enum status checkpoint_keep_others(const char *from, const struct model *m, const char *to);
/* Refuses a multimodal model if the directory lacks the file that checkpoint_keep_others writes (ERR_INVALID). */
enum status checkpoint_check_others(const char *dir, const struct model *m);
/* Returns the bytes of the tensors beside the model; 0 if they cannot be read. */
int64_t checkpoint_others_bytes(const char *from, const struct model *m);
/* Returns the bytes of the tokenizer's and other text files in a model's directory; or of a tokenizer's file. */
int64_t checkpoint_texts_bytes(const char *from);

/* Hashes a model's weights, for session->base_xxh3: every tensor's name, type, shape and bytes, however files share them out. All
 * ranks call it; they read the weights whole, every rank its share, and show it by progress_begin and progress_begin_lines. */
enum status checkpoint_hash_base(struct comm *c, const char *path, uint64_t *out);
/* Refuses a directory that holds a file of a run, or a file whose name an export may write (ERR_INVALID; one rank only). The
 * functions below never overwrite a file. */
enum status checkpoint_check_vacant(const char *dir);
/* Copies an exported adapter's files, and the tokenizer's, card and facts beside them (one rank only). base: location of the base
 * for the copy; NULL: as in `from`. */
enum status checkpoint_copy_adapter(const char *from, const char *to, const char *base);
/* Writes the adapter of a checkpoint as checkpoint_copy_adapter does. m: the model with adapters and all rows; base, base_xxh3:
 * directory and hash of its base. */
enum status checkpoint_write_adapter(const struct model *m, const char *base, uint64_t base_xxh3, const char *checkpoint,
                                     const char *to, const struct export_texts *texts);
/* Tells whether a directory is a checkpoint's: whether it has a manifest. */
int checkpoint_is_there(const char *path);
/* Refuses an adapter's directory, or checkpoint, that says it was trained beside other weights (ERR_INVALID). Any rank may call
 * it alone. */
enum status checkpoint_check_base(const char *adapter, const char *base, uint64_t xxh3);
/* Reads the format of the base during the adapter's training: BASE_STORED, BASE_NF4, BASE_INT8 or BASE_MXFP4. */
enum status checkpoint_adapter_beside(const char *adapter, enum model_base *out);

/* Returns the most bytes that a checkpoint, or an export, takes on a disk. moments: storage type of AdamW's moments. */
int64_t checkpoint_bytes(const struct model *m, enum dtype dtype, enum dtype moments);
int64_t checkpoint_export_bytes(const struct model *m, enum dtype dtype);
/* Removes the remains of killed saves and exports. Called by the one process that has RUN to itself, before anything is saved. */
void checkpoint_remove_dead(const char *run);
/* Counts RUN's checkpoints with final names; *step: the newest one's step (0: there is none). Called by one process. */
int checkpoint_count(const char *run, int64_t *step);

#endif
