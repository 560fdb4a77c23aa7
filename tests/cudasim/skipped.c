/* Prints why the CUDA kernels cannot be simulated here. */
#include <stdio.h>

int main(void)
{
    printf("skipped: cudasim: %s\n", WHY);
    return 77;
}
