// SPDX-License-Identifier: MIT

import Console

/// Replaces Swift's `print` in this program, whose output is JSON. See `Console`.
func print(_ json: String) { Console.json(json) }
