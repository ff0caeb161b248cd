// SPDX-License-Identifier: MIT

import Companion
import Store
import Testing

@testable import Messaging

/// Questions and their answers, byte by byte. Source: docs/protocol/telemetry.md § 6, 7.
@Suite struct NodeQuestionTests {
  private let tag = AckCode(bytes: [1, 2, 3, 4])!
  private let now = Moment(milliseconds: 1_800_000_000_900, trusted: true)

  private func ridge(path: [UInt8]?, bytesPerHop: Int = 1) -> Contact {
    Contact(
      key: PublicKey(bytes: [UInt8](repeating: 7, count: 32))!, type: .repeater,
      outPath: path.flatMap { Path(bytes: $0, bytesPerHop: bytesPerHop) }, name: Text("Ridge"))
  }

  private func frame(_ question: NodeQuestion, _ contact: Contact) -> [UInt8]? {
    question.command(to: contact, time: 9, now: now, CommandMark())?.encode()
  }

  @Test func `a clock and an owner are asked for along a known path, with the way back`() {
    let key = [UInt8](repeating: 7, count: 32)
    #expect(frame(.clock, ridge(path: [])) == [57] + key + [3, 0])
    #expect(frame(.owner, ridge(path: [0xA0, 0xB1])) == [57] + key + [2, 2, 0xB1, 0xA0])
    #expect(frame(.clock, ridge(path: [1, 2, 3, 4], bytesPerHop: 2)) == [57] + key + [3, 0x42, 3, 4, 1, 2])
    #expect(frame(.clock, ridge(path: nil)) == nil)
  }

  @Test func `their answers are read, with padding and without a text`() {
    func answer(_ question: NodeQuestion, _ data: [UInt8]) -> NodeAnswer? {
      question.answer(in: .binaryResponse(tag: tag, data: data), from: ridge(path: []), tag: tag)
    }
    let time: [UInt8] = [0, 0xD2, 0x49, 0x6B]
    #expect(answer(.clock, time + [0x80]) == .clock(0x6B49_D200))
    #expect(answer(.clock, [1, 2]) == nil)
    let owner = Array("Ridge\nBirch\n+41 79".utf8)
    #expect(answer(.owner, time + owner + [0, 0, 0]) == .owner(name: "Ridge", text: "Birch\n+41 79"))
    #expect(answer(.owner, time + Array("Ridge\n".utf8)) == .owner(name: "Ridge", text: ""))
    #expect(answer(.owner, time) == nil)
  }

  @Test func `neighbours of several pages are listed once each, and no question is asked twice`() throws {
    func page(_ total: UInt8, _ nodes: [(name: UInt8, ago: UInt8)]) throws -> Neighbours {
      var bytes: [UInt8] = [total, 0, UInt8(nodes.count), 0]
      for (name, ago) in nodes { bytes += [name, name, name, name, name, name, ago, 0, 0, 0, 20] }
      return try Neighbours(decoding: bytes, keyBytes: 6)
    }
    let first = NodeService.joined(nil, try page(3, [(1, 5), (2, 9), (2, 9)]))
    #expect(first.all.entries.map(\.heardAgo) == [5, 9] && !first.isComplete)
    // The third was heard again meanwhile, so that the second comes once more, with another time.
    let second = NodeService.joined(first.all, try page(3, [(2, 12)]))
    #expect(second.all.entries.map(\.heardAgo) == [5, 9] && second.isComplete, "it added nothing")
    #expect(NodeService.joined(first.all, try page(3, [(3, 1)])).isComplete)
    #expect(NodeService.joined(nil, try page(0, [])).isComplete)
  }

  @Test func `a clock is set by the time of sending, and not by a machine that does not know it`() {
    let mark = CommandMark()
    let command = NodeQuestion.setClock.command(to: ridge(path: []), time: 9, now: now, mark)
    guard case .sendText(let text)? = command else { Issue.record("\(String(describing: command))"); return }
    #expect(text.text == mark.marked("time 1799999999") && text.type == .cliData)
    let unsure = Moment(milliseconds: now.milliseconds, trusted: false)
    #expect(NodeQuestion.setClock.command(to: ridge(path: []), time: 9, now: unsure, mark) == nil)
  }
}
