// SPDX-License-Identifier: MIT

import EventLoop
import TestSupport
import Testing

@testable import Gateway

@Suite struct ServiceTests {
  @Test func `a service that ends early is named, and services end one by one, the newest first`() {
    let loop = EventLoop(on: InventedMachine())
    var (early, ended): ([String], [String]) = ([], [])
    func lasting(_ name: String) -> Service {
      Service(name, end: { ended.append("end of \(name)") }) { () throws(CancellationError) in
        defer { ended.append(name) }
        try await loop.untilCancelled()
      }
    }
    let short = Service("short") { () throws(CancellationError) in try await loop.sleep(for: .seconds(1)) }
    let thrown = Service("thrown") { () throws(CancellationError) in throw CancellationError() }
    let running = RunningServices([lasting("first"), short, thrown, lasting("last")], on: loop) { early.append($0) }
    while early.count < 2 { loop.turn(wait: true) }
    #expect(early == ["thrown", "short"] && ended.isEmpty)
    loop.run { await running.end() }
    #expect(early == ["thrown", "short"] && ended == ["last", "end of last", "first", "end of first"])
  }
}
