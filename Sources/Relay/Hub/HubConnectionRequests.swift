// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON

/// What the gateway asks the hub, and tells it of itself; what the hub asks.
extension HubConnection {
  // MARK: Questions

  func ask(_ question: UpdatesQuestion, _ done: @escaping (JSONValue?) -> Void) {
    switch road {
    case .live(let socket):
      lastNumber += 1
      let id = String(lastNumber)
      let limit = limit(Self.patience, on: socket) { [weak self] in self?.asked.removeValue(forKey: id)?.done(nil) }
      asked[id] = Asked(done: done, limit: limit)
      socket.send(
        text: JSONWriter.object { json in
          json.field("type", "request")
          json.field("id", id)
          json.field("method", question.method)
          json.objectField("params") { question.write(to: &$0) }
        })
    case .http: http.ask(question, done)
    case .none, .opening: loop.later { done(nil) }
    }
  }

  // MARK: States

  /// The newest of its name is told now, or when the hub is there again.
  func setState(_ name: String, _ body: [UInt8]) {
    states.removeAll { $0.name == name }
    states.append((name, body))
    if states.count > Self.maxStates { states.removeFirst() }
    tellStates()
  }

  func tellStates() {
    switch road {
    case .live(let socket):
      for state in states {
        socket.send(
          text: JSONWriter.object { json in
            json.field("type", "state")
            json.field("name", state.name)
            json.field("body", json: state.body)
          })
      }
      states = []
    case .http: http.tell(&states)
    case .none, .opening: break
    }
  }

  // MARK: The hub's requests

  func requested(_ message: JSONValue, _ socket: WebSocket) {
    guard let id = message["id"]?.string else { return }
    guard message["method"]?.string == "command" else {
      return respond(id, [], code: "unknown_method", socket)
    }
    var request = JSONWriter()
    request.value(message["params"] ?? .null)
    onCommand(request.bytes) { [weak self, weak socket] answer in
      guard let self, let socket else { return }
      self.respond(id, answer ?? [], code: "store", socket)
    }
  }

  /// `answer`: an object with `ok`; empty: the request failed with `code`.
  private func respond(_ id: String, _ answer: [UInt8], code: String, _ socket: WebSocket) {
    // `try?`: our own words.
    let fields = (try? JSONValue(parsing: answer))?.fields ?? [("ok", .bool(false)), ("code", .string(code))]
    var json = JSONWriter()
    json.value(.object([("type", .string("response")), ("id", .string(id))] + fields.filter { $0.0 != "id" }))
    socket.send(text: json.bytes)
  }
}
