//! Makes the PTX of the test kernels, and of those of the examples, or takes the committed one if it was made from the same
//! source.

fn main() {
    for (folder, name) in
        [("kernels", "rushmem_test_kernels"), ("../examples/kernels", "rushmem_example_kernels")]
    {
        rushmem_ptx::Builder::new(folder).fallback(format!("../ptx/committed/{name}.ptx")).build();
    }
}
