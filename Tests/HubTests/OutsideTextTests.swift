// SPDX-License-Identifier: MIT

import JSON
import Synchronization
import Testing

@testable import Hub

/// Senders choose the ids of commands: their beginning and their appearance change nothing.
@Suite struct OutsideTextTests {
  private final class Sent: Sendable {
    let ids = Mutex<[String]>([])
  }

  private func linked(_ registry: LinkRegistry, _ sent: Sent) async -> Int {
    await registry.open("g") { bytes in
      let id = (try? JSONValue(parsing: bytes))?["id"]?.string  // invalid JSON has no id
      sent.ids.withLock { $0.append(id ?? "?") }
      return true
    } close: {
    }
  }

  @Test func `two commands whose ids look the same are both answered`() async throws {
    let (registry, sent) = (LinkRegistry(patience: .seconds(600)), Sent())
    _ = await linked(registry, sent)
    let ids = ["caf\u{E9}", "cafe\u{301}"]
    let answers = try await withThrowingTaskGroup(of: (Int, JSONValue).self) { group in
      for (number, id) in ids.enumerated() {
        group.addTask { (number, try await registry.request("g", id: id, command: .null)) }
      }
      for _ in 0..<12_000 where sent.ids.withLock({ $0.count }) < 2 { try await Task.sleep(for: .milliseconds(5)) }
      for (number, id) in ids.enumerated() { await registry.answered("g", id: id, .integer(Int64(number))) }
      return try await group.reduce(into: [Int: JSONValue]()) { $0[$1.0] = $1.1 }
    }
    #expect(answers == [0: .integer(0), 1: .integer(1)])
  }

  @Test func `a command that is asked for again is answered to both, another one of its id is refused`() async throws {
    let (registry, sent) = (LinkRegistry(patience: .seconds(600)), Sent())
    _ = await linked(registry, sent)
    let answers = try await withThrowingTaskGroup(of: JSONValue.self) { group in
      for _ in 0..<2 { group.addTask { try await registry.request("g", id: "c", command: .null) } }
      for _ in 0..<12_000 where sent.ids.withLock({ $0.count }) < 2 { try await Task.sleep(for: .milliseconds(5)) }
      await #expect(throws: LinkRegistry.Failure.away) {
        _ = try await registry.request("g", id: "c", command: .bool(true))
      }
      await registry.answered("g", id: "c", .integer(7))
      return try await group.reduce(into: [JSONValue]()) { $0.append($1) }
    }
    #expect(answers == [.integer(7), .integer(7)])
  }

  @Test func `a command whose id begins with an accent ends with its link`() async throws {
    let (registry, sent) = (LinkRegistry(patience: .seconds(600)), Sent())
    let link = await linked(registry, sent)
    async let answer = registry.request("g", id: "\u{301}x", command: .null)
    for _ in 0..<12_000 where sent.ids.withLock({ $0.isEmpty }) { try await Task.sleep(for: .milliseconds(5)) }
    await registry.ended("g", link)
    do {
      _ = try await answer
      Issue.record("nobody answered")
    } catch {
      #expect(error as? LinkRegistry.Failure == .away)
    }
  }

  @Test func `a waiter for a command whose id begins with an accent is resumed at its end`() async throws {
    let (registry, sent) = (LinkRegistry(patience: .seconds(600)), Sent())
    await withTaskGroup(of: Void.self) { group in
      group.addTask {
        await registry.waitForResult("g", "\u{301}x", limit: .seconds(120))
        sent.ids.withLock { $0.append("over") }
      }
      // Repeated, because the command may not wait yet.
      for _ in 0..<6000 where sent.ids.withLock({ $0.isEmpty }) {
        await registry.received(HubChange(gateway: "g", bucket: "result/\u{301}x", seq: 0))
        // `try?`: this task is never cancelled.
        try? await Task.sleep(for: .milliseconds(10))
      }
      #expect(sent.ids.withLock { $0 } == ["over"])
    }
  }

  @Test func `a request to a silent gateway ends when whoever asks does not want to wait any more`() async throws {
    let (registry, sent) = (LinkRegistry(patience: .seconds(3600)), Sent())
    _ = await linked(registry, sent)
    let begun = ContinuousClock.now
    await #expect(throws: LinkRegistry.Failure.timedOut) {
      _ = try await registry.request("g", id: "c", command: .null, within: .milliseconds(10))
    }
    #expect(ContinuousClock.now - begun < .seconds(1800))
  }

  @Test func `a waiter for a command that ended before is resumed`() async throws {
    let registry = LinkRegistry(patience: .seconds(600))
    let begun = ContinuousClock.now
    await registry.waitForResult("g", "x", limit: .seconds(3600), isOver: { true })
    #expect(ContinuousClock.now - begun < .seconds(1800))
    // Asked while it waits already: an end from then on is noticed.
    await registry.waitForResult("g", "x", limit: .seconds(3600)) {
      await registry.received(HubChange(gateway: "g", bucket: "result/x", seq: 0))
      return false
    }
    #expect(ContinuousClock.now - begun < .seconds(1800))
  }

  @Test(arguments: ["\u{301}x", "x\u{600}", "\u{600} \u{301}", "a b"])
  func `a notification about a command is read with any characters at the ends of its id`(_ id: String) {
    #expect(HubChange("g result/\(id) 0") == HubChange(gateway: "g", bucket: "result/\(id)", seq: 0))
  }
}
