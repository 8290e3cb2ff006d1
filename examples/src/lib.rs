//! ring, stencil and alltoall.
