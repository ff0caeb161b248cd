// SPDX-License-Identifier: MIT
#pragma once

/// Calls `hook` at each fsync and fdatasync of this program, also those of its libraries, instead of the kernel; if it
/// returns 0, it has dealt with the descriptor.
void crash_disk_hook_syncs(int (*hook)(int descriptor));
