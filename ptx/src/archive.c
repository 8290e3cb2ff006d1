/* The host side of the device functions, like that of an object that nvcc has compiled with -rdc=true.
 *
 * When nvcc links a program, it takes device code from the section __nv_relfatbin and the module's name from
 * __nv_module_id. For each name it generates a function that the object calls at start. Once all objects of the program
 * have called theirs, the linked code is registered with the CUDA runtime. All symbols are hidden, so that a program and
 * its shared libraries can each be linked with device functions.
 */

#pragma GCC visibility push(hidden)

__asm__(".section __nv_relfatbin, \"a\"\n"
        ".balign 8\n"
        "rushmem_device_code: .incbin \"device.fatbin\"\n"
        ".previous\n");
extern const char rushmem_device_code[];

/* __fatBinC_Wrapper_t of fatbinary_section.h, which a CUDA toolkit has. */
struct wrapper {
    int magic, version;
    const void *data;
    void *unused;
} __fatbinwrap_rushmem_device __attribute__((section(".nvFatBinSegment"))) = {0x466243b1, 1, rushmem_device_code, 0};

static const char name[] __attribute__((section("__nv_module_id"), used)) = "_rushmem_device";

void __cudaRegisterLinkedBinary_rushmem_device(void (*add_symbols)(void **), void *wrapper, const void *name,
                                               void (*keep)(void *));

#pragma GCC visibility pop

/* There are no kernels and no variables to register. */
static void add_symbols(void **module) {
    (void)module;
}

static void keep(void *name_of_definition) {
    (void)name_of_definition;
}

static void __attribute__((constructor)) start(void) {
    __cudaRegisterLinkedBinary_rushmem_device(add_symbols, &__fatbinwrap_rushmem_device, name, keep);
}
