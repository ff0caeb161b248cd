// SPDX-License-Identifier: MIT

import EventLoop
import JSON

/// Passes a hub's commands on, and answers over the link of the request.
final class HubRequests {
  /// The maximum size of a request's id, in bytes. Each answer has it.
  private static let maxID = 64

  weak var commands: CommandIntake?
  /// Each task waits for the answer to a command, which `CommandIntake` finishes in any case. They outlive links, and
  /// end with the connection (`cancel`).
  private let tasks: LoopTasks
  /// Requests without an answer, over all links.
  private(set) var underWay = 0
  let ended = Waiter()

  init(on loop: EventLoop) { tasks = LoopTasks(on: loop) }

  func requested(_ message: JSONValue, over link: HubLink) {
    guard let id = message["id"]?.string, id.utf8.count <= Self.maxID else { return }
    // Every answer costs traffic, so answers are limited.
    guard commands?.mayAnswer(atLeast: 60) ?? true else { return }
    guard message["method"]?.string == "command" else {
      return link.respond(Self.response(id, [], code: "unknown_method"))
    }
    let request = (message["params"] ?? .null).bytes
    underWay += 1
    tasks.begin { [weak self, weak link] in
      defer {
        self?.underWay -= 1
        self?.ended.resume()
      }
      let answer = await self?.commands?.take(request)
      link?.respond(Self.response(id, answer ?? [], code: answer == nil ? "store" : "invalid"))
    }
  }

  /// `answer`: an object with `ok`; empty: the request failed with `code`.
  private static func response(_ id: String, _ answer: [UInt8], code: String) -> [UInt8] {
    // `try?`: the answer is our own JSON, or empty.
    let fields = (try? JSONValue(parsing: answer))?.fields ?? [("ok", .bool(false)), ("code", .string(code))]
    return JSONValue.object([("type", .string("response")), ("id", .string(id))] + fields.filter { $0.0 != "id" }).bytes
  }

  func cancel() { tasks.cancel() }
}
