// SPDX-License-Identifier: MIT

// Work within a `Store.write` throws this; users of the store need its name, and no other of SQLite's.
@_exported import struct SQLite.SQLiteError
