//! mlx5 wire formats: WQE, CQE, doorbell and PRM command mailboxes.
