// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A hub, broker or webhook behind a line that all connections share, without a buffer.
  @Suite struct NarrowLines {
    private final class Line {
      let program: Program
      let port: Int

      init(to target: Int, rate: Int) throws {
        let script = Checkout.folder.appending(path: "Tests/Doubles/narrowline.py").path()
        program = try Program(Program.python, [script, "\(target)", "\(rate)"])
        port = try program.line(with: "port ").split(separator: " ").last.flatMap { Int($0) } ?? 0
      }

      /// The bytes sent up and down so far.
      var moved: (up: Int, down: Int) {
        let numbers = program.lines.last { $0.hasPrefix("moved") }?.split(separator: " ").compactMap { Int($0) } ?? []
        return numbers.count == 2 ? (numbers[0], numbers[1]) : (0, 0)
      }
    }

    private func pending(_ rig: Rig) throws -> Int {
      Int(try rig.status()?["upstreams"]?.array?.first?["pending"]?.integer ?? .max)
    }

    /// Waits while the backlog shrinks, however slowly.
    private func untilAllSent(_ rig: Rig, _ line: Line) throws {
      var (least, since) = (Int.max, Date())
      while true {
        let left = try pending(rig)
        if left == 0 { return }
        if left < least { (least, since) = (left, Date()) }
        guard Date().timeIntervalSince(since) < 2 * Patience.stillness else {
          throw Program.Waited(
            description: "\(left) are left and it does not move; \(line.moved); \(rig.gateway?.lines.suffix(5) ?? [])")
        }
        usleep(200_000)
      }
    }

    /// The size of the backlog in bytes as sent: each body, with the overhead of journal and connection.
    private func backlog(_ rig: Rig, _ count: Int) throws -> Int {
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("inject r0 0 \(count)")
      try untilTrue("\(count) stored") { try rig.status()?["store"]?["messages"]?.integer == Int64(count) }
      let (rows, bytes) = (try pending(rig), try rig.status()?["store"]?["journal_bytes"]?.integer ?? 0)
      return Int(bytes) + rows * 48
    }

    @Test(
      arguments: [(1500, 403, "live"), (4000, 903, "live"), (2500, 300, "http")]
        as [(rate: Int, events: Int, road: String)])
    func `over a narrow line a hub gets everything once`(_ line: (rate: Int, events: Int, road: String))
      throws
    {
      let rig = try Rig()
      try rig.startRadio(["--queue", "2000"])
      let narrow = try Line(to: rig.hubPort, rate: line.rate)
      rig.writeGatewayConfiguration(
        url: "http://127.0.0.1:\(narrow.port)", extra: line.road == "http" ? "link = \"http\"" : "")
      let ideal = try backlog(rig, line.events)
      try rig.startHub()
      _ = rig.control("POST", "/v1/outbox/resume")
      let begin = Date()
      try untilAllSent(rig, narrow)
      let sent = try Int(rig.status()?["upstreams"]?.array?.first?["bytes_sent"]?.integer ?? 0)
      print("\(line): \(sent) bytes for \(ideal), \(Int(Date().timeIntervalSince(begin))) s, \(narrow.moved)")
      #expect(Double(sent) < Double(ideal) * 1.25, "sent twice: \(sent) bytes for \(ideal)")
      let texts = try rig.hubTexts()
      #expect(texts.count == line.events && Set(texts).count == line.events)
      #expect(rig.gateway?.lines.contains { $0.contains("no answer") } == false)
    }
  }
}
