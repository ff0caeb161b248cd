// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import EventLoop
import HTTP
import JSON
import Messaging
import Store

/// `/v1/node/snapshot` and `/v1/node/snapshots`: the settings of a node.
struct SnapshotAPI {
  /// The rows of a snapshot that is being taken.
  private final class Rows {
    let wake = Waiter()
    private var lines: [UInt8] = []
    private var hasEnded = false

    func add(_ line: [UInt8], isLast: Bool = false) {
      lines += line
      hasEnded = isLast
      wake.resume()
    }

    func take() throws -> [UInt8] {
      defer { lines = [] }
      if hasEnded { throw Reply.Ended(lines: lines) }
      return lines
    }
  }

  let dependencies: ControlAPI.Dependencies

  private func node(_ name: String) throws(Refusal) -> StoredContact {
    try Addressing(dependencies.store).contact(name)
  }

  /// Takes a snapshot while the client listens.
  func take(_ body: RequestBody, _ reply: Reply) async throws -> Answer {
    let (nodes, stored, rows) = (dependencies.messaging.nodes, try node(body.string("node")), Rows())
    try nodes.maySnapshot(stored)
    let task = dependencies.loop.begin {
      let row = Shape.SnapshotProgress()
      do throws(Refusal) {
        let snapshot = try await nodes.snapshot(of: stored) { progress in
          rows.add(ControlAPI.line { Self.write(progress, to: &$0) })
        }
        rows.add(ControlAPI.line { $0.field(row.snapshot, json: snapshot) }, isLast: true)
      } catch {
        rows.add(ControlAPI.line { $0.field(row.error, error.description) }, isLast: true)
      }
    }
    defer { task.cancel() }
    return try await reply.rows(follow: true, wake: rows.wake, headers: Reply.rowHeaders) { (try rows.take(), true) }
  }

  private static func write(_ progress: NodeService.SnapshotProgress, to json: inout JSONWriter) {
    let row = Shape.SnapshotProgress()
    switch progress {
    case .told(let setting, let value, let done, let count):
      json.field(row.setting, setting)
      json.field(row.value, value)
      json.field(row.done, done)
      json.field(row.of, count)
    case .waits(let why): json.field(row.waits, why)
    }
  }

  func list(_ request: HTTPRequest, _ reply: Reply) async throws -> Answer {
    let stored = try node(request.query["node"] ?? "")
    return try await reply.rows(dependencies.store.snapshots(of: stored.contact.key).flatMap { $0 + [10] })
  }
}
