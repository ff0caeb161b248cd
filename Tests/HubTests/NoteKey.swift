// SPDX-License-Identifier: MIT

/// The key of a document that gateways and operators may set: the note of a node with this number.
func noteKey(_ number: some BinaryInteger) -> String {
  let digits = String(number)
  return "node/\(String(repeating: "0", count: 64 - digits.utf8.count))\(digits)/note"
}
