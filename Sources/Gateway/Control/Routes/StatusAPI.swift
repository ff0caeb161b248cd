// SPDX-License-Identifier: MIT

import ControlShapes
import HTTP
import JSON
import Sync

/// `/v1/status`, `/metrics`, `/v1/sync`.
struct StatusAPI {
  let dependencies: ControlAPI.Dependencies

  func show() throws -> Answer {
    try .json { try StatusReport(dependencies: dependencies).write(to: &$0) }
  }

  func metrics() throws -> Answer {
    let body = try MetricsReport(dependencies: dependencies).write()
    return .whole(
      HTTPResponse(
        status: 200, headers: ["Content-Type": "text/plain; version=0.0.4; charset=utf-8"], body: body))
  }

  /// The sync state: one object, or with `follow=1` one per line at each change.
  func sync(_ request: HTTPRequest, _ reply: Reply) async throws -> Answer {
    let report = StatusReport(dependencies: dependencies)
    guard request.query["follow"] == "1" else {
      return .json { json in
        report.writeSync(to: &json)
        report.writeUpdates(to: &json)
      }
    }
    var last: SyncState?
    return try await reply.rows(follow: true) {
      guard last != dependencies.synchronizer.state else { return ([], true) }
      last = dependencies.synchronizer.state
      return (ControlAPI.line { report.writeSync(to: &$0) }, true)
    }
  }

  func startSync(_ request: HTTPRequest) throws -> Answer {
    dependencies.relay.refresh()
    guard dependencies.connection.state == .up else {
      throw Rejection(status: 409, message: "the radio's link is down")
    }
    dependencies.synchronizer.restart(fully: request.query["full"] == "1")
    return .json(status: 202) { $0.field(Shape.Ok().ok, true) }
  }
}
