//! #[kernel]: one source function, a PTX entry and a native kernel.
