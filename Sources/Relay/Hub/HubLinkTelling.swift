// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON

/// What the gateway asks the hub, and tells it of itself.
extension HubLink {
  // MARK: Questions

  func ask(_ question: UpdatesQuestion, _ done: @escaping (JSONValue?) -> Void) {
    switch road {
    case .live(let socket):
      lastNumber += 1
      let id = String(lastNumber)
      let timer = loop.schedule(after: Self.patience) { [weak self] in self?.asked.removeValue(forKey: id)?.done(nil) }
      asked[id] = Asked(done: done, timer: timer)
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
    if states.count > Self.mostStates { states.removeFirst() }
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
}
