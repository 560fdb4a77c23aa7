/* Tests reading rank and size from every launcher's variables, refusing launchers that disagree, and recognising a process that
 * runs alone inside a Slurm allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "comm/launch.h"

#include <stdlib.h>
#include <string.h>

struct variables {
    const char *set[12]; /* name, value, ... */
    int rank, size, local_rank;
    const char *source;
};

static void environment(const char *const *set)
{
    clearenv();
    for (int i = 0; set[i]; i += 2)
        setenv(set[i], set[i + 1], 1);
}

static const struct variables each[] = {
    {{NULL}, 0, 1, 0, "single process"},
    {{"RANK", "3", "WORLD_SIZE", "8", "LOCAL_RANK", "1"}, 3, 8, 1, "torchrun"},
    {{"RANK", "whatever"}, 0, 1, 0, "single process"}, /* somebody's own variable */
    {{"PALS_RANKID", "5", "PMI_SIZE", "8", "PALS_LOCAL_RANKID", "1", "PMI_RANK", "5"}, 5, 8, 1, "PALS"},
    {{"PMIX_RANK", "2", "PMIX_SIZE", "4"}, 2, 4, -1, "PMIx"},
    {{"PMIX_RANK", "2", "OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_LOCAL_RANK", "0"},
     2,
     4,
     0,
     "PMIx, Open MPI"},
    {{"PMIX_RANK", "2", "SLURM_PROCID", "2", "SLURM_STEP_NUM_TASKS", "4", "SLURM_STEP_ID", "0"}, 2, 4, -1, "PMIx, Slurm"},
    {{"OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_RANK", "0"}, 0, 2, 0, "Open MPI"},
    {{"MV2_COMM_WORLD_RANK", "1", "MV2_COMM_WORLD_SIZE", "2", "MV2_COMM_WORLD_LOCAL_RANK", "1", "PMI_RANK", "1", "PMI_SIZE", "2"},
     1,
     2,
     1,
     "MVAPICH"},
    {{"PMI_RANK", "6", "PMI_SIZE", "7", "MPI_LOCALRANKID", "2"}, 6, 7, 2, "MPICH"},
    {{"SLURM_PROCID", "3", "SLURM_STEP_NUM_TASKS", "4", "SLURM_STEP_ID", "0", "SLURM_LOCALID", "1"}, 3, 4, 1, "Slurm"},
    /* a batch script's own process, salloc's shell, and mpiexec's children of daemons that srun started */
    {{"SLURM_PROCID", "0", "SLURM_NTASKS", "8", "SLURM_JOB_ID", "77", "SLURM_LOCALID", "0"}, 0, 1, 0, "single process"},
    {{"SLURM_JOB_ID", "77", "SLURM_NTASKS", "8"}, 0, 1, 0, "single process"},
    {{"SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", "SLURM_STEP_ID", "0", "OMPI_COMM_WORLD_RANK", "5", "OMPI_COMM_WORLD_SIZE",
      "8"},
     5,
     8,
     -1,
     "Open MPI"},
    {{"SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "1", "SLURM_STEP_ID", "4294967290"}, 0, 1, 0, "Slurm"}, /* interactive step */
};

static void every_launcher_is_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        struct launch l;
        environment(each[i].set);
        assert_int_equal(launch_detect(NULL, &l), OK);
        assert_int_equal(l.rank, each[i].rank);
        assert_int_equal(l.size, each[i].size);
        assert_int_equal(l.local_rank, each[i].local_rank);
        assert_string_equal(l.source, each[i].source);
        assert_true(l.host[0] != 0);
    }
}

static void flags_come_first(void **state)
{
    (void)state;
    struct launch l;
    environment((const char *[]){NULL});
    assert_int_equal(launch_detect(&(struct launch_flags){2, 4, -1}, &l), OK);
    assert_int_equal(l.rank, 2);
    assert_int_equal(l.size, 4);
    assert_string_equal(l.source, "--rank");
    assert_int_equal(launch_detect(&(struct launch_flags){-1, -1, -1}, &l), OK);
    assert_string_equal(l.source, "single process");
    assert_int_equal(launch_detect(&(struct launch_flags){4, 4, -1}, &l), ERR_INVALID);
    assert_non_null(strstr(status_message(), "--rank 4 and --world-size 4: ranks are numbered from 0, up to 3 here"));
    assert_int_equal(launch_detect(&(struct launch_flags){0, -1, -1}, &l), ERR_INVALID);
    assert_non_null(strstr(status_message(), "--rank 0 is given without --world-size"));
    assert_int_equal(launch_detect(&(struct launch_flags){-1, 2, -1}, &l), ERR_INVALID);
    assert_non_null(strstr(status_message(), "--world-size 2 is given without --rank"));
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    assert_int_equal(launch_detect(&(struct launch_flags){2, 4, -1}, &l), ERR_INVALID);
}

static void refused(const char *const *set, const char *a, const char *b)
{
    struct launch l = {.size = 99};
    environment(set);
    assert_int_equal(launch_detect(NULL, &l), ERR_INVALID);
    assert_non_null(strstr(status_message(), a));
    assert_non_null(strstr(status_message(), b));
    assert_int_equal(l.size, 99);
}

static void disagreement_names_both(void **state)
{
    (void)state;
    refused((const char *[]){"RANK", "0", "WORLD_SIZE", "1", "OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4", NULL},
            "torchrun says that this is rank 0 of 1", "Open MPI says rank 3 of 4");
    refused((const char *[]){"RANK", "3", "WORLD_SIZE", "8", "PMI_RANK", "3", "PMI_SIZE", "4", NULL}, "rank 3 of 8",
            "rank 3 of 4");
    refused((const char *[]){"PMIX_RANK", "1", "OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "4", NULL},
            "PMIx says that this is rank 1,", "Open MPI says rank 0 of 4");
    refused((const char *[]){"PMI_RANK", "4", "PMI_SIZE", "4", NULL}, "PMI_RANK is 4", "PMI_SIZE is 4");
    refused((const char *[]){"PMI_RANK", "two", "PMI_SIZE", "4", NULL}, "PMI_RANK is 'two'", "not a rank");
    refused((const char *[]){"PMIX_RANK", "1", NULL}, "rank 1", "not of how many");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher_is_understood),
        cmocka_unit_test(flags_come_first),
        cmocka_unit_test(disagreement_names_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
