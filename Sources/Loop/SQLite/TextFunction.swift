// SPDX-License-Identifier: MIT

import CSQLite

extension Database {
  /// Adds a SQL function that maps bytes of a text to a text, and NULL to NULL. Only this connection has it, so the
  /// schema must not use it: other programs that open the file lack it, and SQLite refuses it there.
  public func addTextFunction(_ name: String, _ function: @escaping ([UInt8]) -> [UInt8]) throws(SQLiteError) {
    let box = Unmanaged.passRetained(TextFunction(function)).toOpaque()
    let flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY
    // SQLite calls the last argument when the connection closes, and if this call fails.
    let code = sqlite3_create_function_v2(
      handle, name, 1, flags, box,
      { context, count, values in
        guard count == 1, let value = values?[0], let text = sqlite3_value_text(value),
          let box = sqlite3_user_data(context)
        else { return sqlite3_result_null(context) }
        let function = Unmanaged<TextFunction>.fromOpaque(box).takeUnretainedValue()
        let length = Int(sqlite3_value_bytes(value))
        let answer = function.turn(Array(UnsafeBufferPointer(start: text, count: length)))
        // The additional byte gives an empty text an address; SQLite would take a null pointer for NULL.
        (answer + [0]).withUnsafeBytes { bytes in
          // SQLITE_TRANSIENT: SQLite makes its own copy.
          let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
          sqlite3_result_text(
            context, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(clamping: answer.count), copied)
        }
      }, nil, nil, { box in box.map { Unmanaged<TextFunction>.fromOpaque($0).release() } })
    guard code == SQLITE_OK else { throw error(code) }
  }
}

private final class TextFunction {
  let turn: ([UInt8]) -> [UInt8]
  init(_ turn: @escaping ([UInt8]) -> [UInt8]) { self.turn = turn }
}
