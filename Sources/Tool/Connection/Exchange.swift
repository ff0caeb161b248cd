// SPDX-License-Identifier: MIT

import ArgumentParser
import HTTP
import JSON
import UntrustedText

/// A request to the control socket. `show` prints its answer for people; `--json` prints the answer unchanged.
struct Exchange {
  let request: HTTPRequest
  /// Seconds to wait for the answer.
  let limit: Int
  let show: (JSONValue) throws -> Void

  static func get(_ target: String, limit: Int = 30, _ show: @escaping (JSONValue) throws -> Void) -> Exchange {
    Exchange(request: HTTPRequest("GET", target), limit: limit, show: show)
  }

  /// A request that changes something.
  static func post(
    _ target: String, body: [UInt8] = [], limit: Int = 30, _ show: @escaping (JSONValue) throws -> Void
  ) -> Exchange {
    Exchange(request: HTTPRequest("POST", target, body: body), limit: limit, show: show)
  }

  /// A request after which there is only one thing to say.
  static func post(_ target: String, body: [UInt8] = [], limit: Int = 30, done: String) -> Exchange {
    post(target, body: body, limit: limit) { _ in print(done) }
  }
}

/// A command that is one exchange with the gateway.
protocol ExchangeCommand: ParsableCommand {
  var connection: Connection { get }
  var exchange: Exchange { get throws }
}

extension ExchangeCommand {
  func run() throws { try ControlClient(connection).carryOut(exchange) }
}

extension [UInt8] {
  /// The body of a request with these fields; those that are `nil` are left out.
  static func object(_ fields: KeyValuePairs<String, JSONValue?>) -> [UInt8] {
    JSONValue.object(fields.compactMap { name, value in value.map { (name, $0) } }).bytes
  }
}

extension String {
  /// The target of a request with these parameters; those that are `nil` are left out.
  func with(_ parameters: KeyValuePairs<String, String?>) -> String {
    parameters.reduce(self) { target, parameter in
      guard let value = parameter.value else { return target }
      return "\(target)\(target.has("?") ? "&" : "?")\(parameter.key)=\(PercentCoding.encode(value))"
    }
  }
}
