// SPDX-License-Identifier: MIT

import Foundation
import Testing

/// The inputs that the fuzzer has kept, without the fuzzer.
@Suite struct KeptInputsTests {
  private static let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "Inputs")

  @Test(arguments: FuzzTarget.allCases) func `each kept input has the properties of its target`(
    _ target: FuzzTarget
  ) throws {
    let file = Self.folder.appending(path: target.rawValue)
    let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
    #expect(!lines.isEmpty)
    for line in lines {
      let bytes = try #require(Data(base64Encoded: String(line.prefix { $0 != " " })))
      KeptInput.$line.withValue(String(line)) { target.run(Array(bytes)) }
    }
  }
}

private enum KeptInput {
  /// As it is in the file.
  @TaskLocal static var line = ""
}

/// A property of a reader. `reason` completes the sentence "it does not hold that …".
func must(_ holds: Bool, _ reason: @autoclosure () -> String, line: Int = #line, file: String = #filePath) {
  guard !holds else { return }
  let place = SourceLocation(fileID: #fileID, filePath: file, line: line, column: 1)
  Issue.record("it does not hold that \(reason()); the input is \(KeptInput.line)", sourceLocation: place)
}
