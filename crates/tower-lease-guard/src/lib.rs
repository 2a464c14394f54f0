//! A dead, paused or cut-off owner can neither block nor write: leases, heartbeats, fencing tokens.
