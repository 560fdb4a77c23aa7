"""Spack package of ltrain, from a tree on this machine: `spack repo add tools/spack/spack_repo/ltrain`, then `spack dev-build ltrain@main` in
the tree's root. Spack 1.0 or later, whose build systems are in spack_repo.builtin."""
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.meson import MesonPackage

from spack.package import *


class Ltrain(MesonPackage, CudaPackage):
    """Trains language models on very long sequences, with state and activations offloaded to host memory and drives."""

    manual_download = True
    url = "file:///dev/null/ltrain-main.tar.gz"  # a tree that is there already: spack dev-build

    version("main")

    variant("mpi", default=True, description="several ranks")
    variant("uring", default=True, description="drives by io_uring")
    variant("hwloc", default=True, description="placement of threads and pinned memory")

    depends_on("c", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type="build")
    depends_on("jansson")
    depends_on("libyaml")
    depends_on("xxhash")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("liburing", when="+uring")
    depends_on("hwloc", when="+hwloc")
    depends_on("mpi", when="+mpi", type=("build", "run"))
    depends_on("cuda@13:", when="+cuda")

    def meson_args(self):
        """Returns the features of the variants; tests are left to tools/test.sh. Open MPI and MPICH each have a module of their own."""
        feature = lambda name: "auto" if self.spec.satisfies("+" + name) else "disabled"
        return ["-D%s=%s" % (name, feature(name)) for name in ("mpi", "uring", "hwloc", "cuda")] + ["-Dtests=disabled"]
