// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport

/// A line between two networks of their own, near and far, which all connections share: Tests/Doubles/shapedline.py, with its options and commands.
/// Needs root and /dev/net/tun.
final class ShapedLine {
  /// The totals of one direction.
  struct Way {
    /// Bytes on the line, with IP headers.
    var bytes = 0
    /// TCP payload on the line, and the part of it that the line had carried before.
    var (payload, again) = (0, 0)
    /// TCP payload that senders handed to the line, and the part of it that they had handed over before.
    var (offered, repeated) = (0, 0)
    /// Packets that were dropped: full buffer, chance, cuts, and a NAT that had forgotten the connection.
    var (full, lost, cut, forgotten) = (0, 0, 0, 0)

    init(_ json: JSONValue?) {
      func count(_ name: String) -> Int { Int(json?[name]?.integer ?? 0) }
      bytes = count("bytes")
      (payload, again) = (count("payload"), count("again"))
      (offered, repeated) = (count("offered"), count("repeated"))
      (full, lost, cut, forgotten) = (count("full"), count("lost"), count("cut"), count("forgotten"))
    }

    /// The share of TCP's payload that was sent before.
    var share: Double { offered == 0 ? 0 : Double(repeated) / Double(offered) }
  }

  let program: Program
  /// The files of the two networks, for `nsenter --net`.
  let near: String
  let far: String
  let farAddress: String
  /// A Unix socket to a port on the far side, past the line.
  let door: String

  init(_ arguments: [String], door: String, to port: Int = 0) throws {
    self.door = door
    let script = Checkout.folder.appending(path: "Tests/Doubles/shapedline.py").path()
    program = try Program(Program.python, [script] + arguments + ["--door", door, "\(port)"])
    let told = try JSONValue(parsing: try program.line(with: "{"))
    guard let near = told["near"]?.string, let far = told["far"]?.string, let address = told["far_address"]?.string
    else {
      throw Program.Waited(description: "no line can be made: \(program.lines)")
    }
    (self.near, self.far, farAddress) = (near, far, address)
  }

  /// Whether a line can be made here.
  static var isPossible: Bool {
    let scratch = Scratch()
    // `try?`: an error means that it cannot be made.
    return (try? ShapedLine([], door: scratch.location("door"))) != nil
  }

  /// Changes the line, and returns its totals until then: `rate UP [DOWN]`, `loss PERCENT`, `cut [SECONDS]`, `mend`, `forget`; `report` changes
  /// nothing.
  @discardableResult
  func tell(_ command: String) throws -> (up: Way, down: Way) {
    let before = program.lines.count
    program.write(command)
    let json = try JSONValue(parsing: try program.line(with: "\"after\":\"\(command)\"", from: before))
    return (Way(json["up"]), Way(json["down"]))
  }

  /// Measures the line with plain TCP and UDP: Tests/Doubles/lineprobe.py.
  func probe(_ arguments: [String], in network: String? = nil) throws -> Program {
    let script = Checkout.folder.appending(path: "Tests/Doubles/lineprobe.py").path()
    return try Program.start(Program.python, [script] + arguments, in: network ?? near)
  }
}
