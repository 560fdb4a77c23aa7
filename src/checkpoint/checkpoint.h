/* Checkpoints: named tensors as global element ranges, never one run's layout, so that any placement, mesh, ZeRO stage and number
 * of ranks can load them. Written and read by all ranks of a session together: the run's directory is on a file system that all
 * of them see, at the path that each is given.
 *
 * RUN/checkpoints/step-000100/
 *   model.safetensors, config.json   parameters under Hugging Face names, in the run's dtype; of a model with adapters what is trained
 *   optimizer.safetensors            "master.NAME" (bf16 runs), "m.NAME", "v.NAME" in fp32, of trained parameters only
 *   config.yaml, data.txt            what the run needs beside them to go on: its settings, and which data it was trained on
 *   manifest.json                    step, cursor, updates, seed, numerics key, model facts, ancestors, every file's size and hash (of
 *                                    segments: files.h), its own xxh3
 * RUN/checkpoints/latest             the newest whole one's name
 *
 * Tensors have all rows of learned positions. Those that the run does not use are copied, moments too, from where its state came
 * from: initial values, weights, the checkpoint that was loaded or saved last (session->origin), which must still be there.
 *
 * Protocol (kill -9 of any rank at any moment leaves the newest whole checkpoint loadable): everything is written and synced in
 * step-N.partial by all ranks; once all have agreed that they did, rank 0 writes the manifest and renames the directory to
 * step-N; `latest` is replaced by write, sync, rename; then all but the last `keep` and dead directories are removed. Names,
 * phases and invariants: checkpoint.c.
 *
 * All ranks of the session's communicator call each of these with the same arguments (the paths may differ in text) and get the
 * same status; the sentence names the rank that failed. */
#ifndef LTRAIN_CHECKPOINT_CHECKPOINT_H
#define LTRAIN_CHECKPOINT_CHECKPOINT_H

#include "engine/session.h"

struct checkpoint_info {
    int64_t step;    /* steps done */
    uint64_t cursor; /* training sequences taken */
    int64_t updates; /* optimizer steps done (skipped ones do not count) */
    uint64_t seed;
    char numerics[256]; /* the numerics key */
};

/* Rank 0's count; NULL stands for an empty text. */
struct checkpoint_texts {
    char *settings, *data;
};

/* No update may be pending (flush first), and nothing may be running. keep >= 1; texts may be NULL. Memory: one group and a few hundred KiB. On
 * failure the former checkpoints are as they were; ERR_DIVERGED names a tensor with NaN or infinite elements, ERR_IO says what
 * could not be written, ERR_INVALID that a rank does not see the directory; what is said of an origin that is gone, changed or
 * damaged names it. */
enum status checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info,
                            const struct checkpoint_texts *texts, int keep);
/* By all ranks, before anything is trained that could not be saved: whether each sees the run's directory, which rank 0 has made.
 * ERR_INVALID: one does not. */
enum status checkpoint_compare_place(struct comm *c, const char *run);
/* path: directory of a run's newest whole checkpoint, every file read and its hash checked. That is what `latest` names; if
 * `latest` or what it names is missing or damaged, the newest other one, and *note says so (else it is empty). ERR_INVALID: there
 * is none. All ranks find the same. */
enum status checkpoint_find(struct comm *c, const char *run, char *path, int path_size, struct checkpoint_info *info, char *note,
                            int note_size);
/* The texts of a checkpoint that was found, to be freed; by any rank alone. */
enum status checkpoint_read_texts(const char *path, struct checkpoint_texts *out);
/* The newest that has a config.json, the one that `latest` names before others; what is in it is not checked. By any rank alone.
 * ERR_INVALID: there is none. */
enum status checkpoint_newest(const char *run, char *path, int path_size);
/* Loads parameters, masters and moments into the session's homes, every rank its own, whatever the placement, ranks and dtype of
 * both sides: masters are the truth, or the parameters where there are none (fp32 runs, frozen ones). Before anything is loaded
 * it checks every file's size and hash (ERR_CORRUPT naming the file), then the model: configuration, names, shapes, what is
 * frozen, and that what it reads is finite (ERR_INVALID naming the first difference or the tensor). */
enum status checkpoint_load(struct session *s, const char *path);
/* Writes DIR/config.json and DIR/model.safetensors as transformers reads them; beyond `most` bytes several files and their index.
 * Creates DIR (its parent exists); whole files are renamed into place. ERR_DIVERGED as above: what was there
 * stays. like: a directory with the model's original config.json, whose keys are kept (a preset has none), and the files of a tokenizer,
 * which are copied. texts NULL: there are none. */
enum { EXPORT_ONE_FILE = 0 };
#define EXPORT_FILE_BYTES ((int64_t)5000000000) /* as transformers cuts models */
#define FACTS_FILE "ltrain_run.json"
#define CARD_FILE "README.md"
/* What an export has beside the model; each may be NULL. Rank 0's count. */
struct export_texts {
    const char *like;         /* the directory */
    const char *facts, *card; /* the texts of FACTS_FILE and CARD_FILE */
};
enum status checkpoint_export(struct session *s, const char *dir, const struct export_texts *texts, int64_t most);
/* Copies config.json and the files of the tokenizer from a model's directory to another one, by one rank: what exports need of it.
 * tokenizer: the directory or file of another tokenizer, whose files are copied instead; "": none are; or NULL. Files of these names that were
 * there are removed. Of a multimodal model also the file of its other tensors, if `from` has it. */
enum status checkpoint_keep_texts(const char *from, const char *tokenizer, const char *to);
/* Replaces only the tokenizer's files in such a copy, which need not be there yet. */
enum status checkpoint_keep_tokenizer(const char *tokenizer, const char *to);
/* Replaces only the chat template: chat_template.jinja is read before what other files say of it. */
enum status checkpoint_keep_template(const char *text, const char *to);
/* Replaces only generation_config.json. */
enum status checkpoint_keep_generation(const char *text, const char *to);
/* By one rank: of a multimodal model, the tensors of its files that are not the text model's, in one file of a directory; of others
 * nothing. */
enum status checkpoint_keep_others(const char *from, const struct model *m, const char *to);
/* ERR_INVALID: the model is a multimodal one, and the directory has no such file. */
enum status checkpoint_check_others(const char *dir, const struct model *m);
/* What these tensors take; 0 where they cannot be read. */
int64_t checkpoint_others_bytes(const char *from, const struct model *m);
/* Bytes of such files in a model's directory; or of a tokenizer's file. */
int64_t checkpoint_texts_bytes(const char *from);

/* By all ranks: the hash of a model's weights, for session->base_xxh3: of every tensor's name, type, shape and bytes, however files
 * share them out. They are read whole, every rank its share, which progress_begin and progress_lines show. */
enum status checkpoint_hash_base(struct comm *c, const char *path, uint64_t *out);
/* ERR_INVALID: the directory has a file of a name that an export may write, or of a run. By one rank. What follows never writes over a file. */
enum status checkpoint_check_vacant(const char *dir);
/* An exported adapter's files, and the tokenizer's, card and facts beside them, by one rank. base: where the copy says that its base lies;
 * NULL: as it is there. */
enum status checkpoint_copy_adapter(const char *from, const char *to, const char *base);
/* As checkpoint_copy_adapter, from a checkpoint of a model with adapters (m, with all rows), whose base lies in a directory and has that hash. */
enum status checkpoint_write_adapter(const struct model *m, const char *base, uint64_t base_xxh3, const char *checkpoint, const char *to,
                                     const struct export_texts *texts);
/* Whether a directory is a checkpoint's: it has a manifest. */
int checkpoint_is_there(const char *path);
/* ERR_INVALID: the adapter's directory, or checkpoint, says that it was trained beside other weights. By any rank alone. */
enum status checkpoint_check_base(const char *adapter, const char *base, uint64_t xxh3);
/* What the adapter's directory says that the base was kept as beside it: BASE_STORED, BASE_NF4 or BASE_INT8. */
enum status checkpoint_adapter_beside(const char *adapter, enum model_base *out);

/* Bytes that a checkpoint, or an export, takes at most on a disk. moments: what AdamW's are stored in. */
int64_t checkpoint_bytes(const struct model *m, enum dtype dtype, enum dtype moments);
int64_t checkpoint_export_bytes(const struct model *m, enum dtype dtype);
/* By the one process that has RUN to itself, before anything is saved: removes what saves and exports that were killed left. */
void checkpoint_remove_dead(const char *run);
/* By one process: how many checkpoints with final names RUN has, and the newest one's step (0: there is none). */
int checkpoint_count(const char *run, int64_t *step);

#endif
