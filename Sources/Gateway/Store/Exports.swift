// SPDX-License-Identifier: MIT

// Work within a `Store.write` throws this, the only error of SQLite that users of the store need.
@_exported import struct SQLite.SQLiteError
