// SPDX-License-Identifier: MIT

import Glibc
import UntrustedText

/// The daemon's check of a configuration file: `meshpostd --check`.
struct ConfigurationCheck {
  struct Remark {
    /// The line in the file; 0: the whole file.
    let line: Int
    /// `SECTION.KEY`; empty: no key.
    let key: String
    let words: String
  }

  /// With these the gateway does not start.
  private(set) var mistakes: [Remark] = []
  /// With these the gateway starts, perhaps without some of its parts.
  private(set) var warnings: [Remark] = []

  /// What is wrong with the database, which no gateway has open.
  var ofStore: [String] {
    let mark = "store.location: "
    return warnings.filter { $0.line == 0 && $0.words.begins(with: mark) }
      .map { String(decoding: $0.words.utf8.dropFirst(mark.utf8.count), as: UTF8.self) }
  }

  /// `credentials`: the folder with the service's secrets. `place`: the folder where they will be, for the remarks.
  init(_ file: String, credentials: String? = nil, for place: String? = nil) throws {
    var ends: [Int32] = [0, 0]
    guard pipe(&ends) == 0 else { throw Failure.file(file) }
    let variables = credentials.map { ["CREDENTIALS_DIRECTORY=\($0)"] } ?? []
    let arguments = [ChildProgram.daemon, "--check", "--config", file]
    let child = try? ChildProgram(["/usr/bin/env"] + variables + arguments, files: [(2, ends[1])])  // it says why
    close(ends[1])
    let said = String(decoding: InputFile.rest(of: ends[0]) ?? [], as: UTF8.self)
    close(ends[0])
    guard let code = child?.wait(), code == 0 || code == EX_CONFIG else {
      throw Failure.say("\(ChildProgram.daemon) cannot check \(file): \(said)", EX_UNAVAILABLE)
    }
    for line in said.lines {
      let (level, rest) = Self.head(of: line)
      let (named, words) = Self.head(of: rest)
      guard let level else { continue }
      var text = named?.isExactly(file) == true ? words : rest
      if let credentials, let place { text = Self.text(text, "\(place)/", insteadOf: "\(credentials)/") }
      let remark = Self.remark(text)
      if level == "error" { mistakes.append(remark) } else { warnings.append(remark) }
    }
  }

  private static func text(_ text: String, _ new: String, insteadOf old: String) -> String {
    var (bytes, rest) = ([UInt8](), text.utf8[...])
    while let byte = rest.first {
      let isOld = rest.starts(with: old.utf8)
      if isOld { bytes += new.utf8 } else { bytes.append(byte) }
      rest = rest.dropFirst(isOld ? old.utf8.count : 1)
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// `line 3: radio.key: expected …`
  private static func remark(_ text: String) -> Remark {
    let (place, words) = head(of: text)
    guard let place, place.begins(with: "line "),
      let line = Int(String(decoding: place.utf8.dropFirst(5), as: UTF8.self))
    else { return Remark(line: 0, key: "", words: text) }
    return Remark(line: line, key: head(of: words).head ?? "", words: words)
  }

  /// The text before the first colon, and the rest.
  private static func head(of text: String) -> (head: String?, rest: String) {
    let parts = text.pieces(at: ":", most: 2)
    guard parts.count == 2 else { return (nil, text) }
    return (parts[0], String(decoding: parts[1].utf8.drop { $0 == 0x20 }, as: UTF8.self))
  }
}
