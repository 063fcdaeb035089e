// How fast this machine reads memory: the yardstick of every speed figure.
#pragma once

namespace tern {

/// Bytes a second that `threads` threads together read from a buffer larger than the caches. Measured once a process
/// (about a quarter of a second), then remembered. 0 when memory is too short to measure.
double read_bandwidth(int threads);

}  // namespace tern
