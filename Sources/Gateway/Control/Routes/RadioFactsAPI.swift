// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import JSON
import Messaging
import Store
import Timing

/// `/v1/radio/survey`, `/v1/radio/variables`: what is in the radio's range, and what its board has to set.
struct RadioFactsAPI {
  private static let usualSeconds: Int64 = 15
  /// The firmware's list is shorter than a frame.
  private static let longestPair = 140

  let dependencies: ControlAPI.Dependencies

  /// Nodes in direct range. `seconds`: how long to listen; `types`: which nodes are asked.
  func survey(_ body: RequestBody) async throws(Refusal) -> Answer {
    let most = Int64(RadioSurvey.longest.inSeconds)
    let seconds = try body.integer("seconds", in: 1...most) ?? Self.usualSeconds
    let words = (try body.optional("types") ?? "repeater").pieces(at: ",")
    var types: [NodeType] = []
    for word in words { types.append(try RadioSurvey.nodeType(named: word)) }
    let found = try await dependencies.messaging.survey.run(types, for: .seconds(seconds))
    return .json { json in
      json.objects(Shape.Survey().nodes, found) { node, json in
        let row = Shape.SurveyedNode()
        json.field(row.key, Hex.string(node.key))
        json.field(row.name, dependencies.store.nameShown(for: KeyPrefix(bytes: Array(node.key.prefix(6)))))
        json.field(row.type, node.type.name)
        json.field(row.snr, node.snr.decibels)
        json.field(row.rssi, node.rssi)
        json.field(row.snrThere, node.snrThere.decibels)
      }
    }
  }

  func showVariables() async throws(Refusal) -> Answer {
    switch await dependencies.connection.ask(.getCustomVariables, .interactive) {
    case .replied(.customVariables(let text)):
      let pairs = text.string.pieces(at: ",").map { $0.pieces(at: ":", most: 2) }.filter { $0.count == 2 }
      return .json { json in
        json.objects(Shape.Variables().variables, pairs) { pair, json in
          json.field(Shape.Variable().name, pair[0])
          json.field(Shape.Variable().value, pair[1])
        }
      }
    case .failed(.linkLost): throw .linkDown
    case .failed(.refused): throw .radio("the radio's firmware has no variables")
    default: throw .radio("the radio did not return its variables")
    }
  }

  /// Sets a variable of the radio's board, such as `gps`; answers with all of them.
  func setVariable(_ body: RequestBody) async throws(Refusal) -> Answer {
    let (name, value) = (try body.string("name"), try body.string("value"))
    let pair = "\(name):\(value)"
    guard !name.isEmpty, !pair.utf8.contains(0), !pair.utf8.contains(UInt8(ascii: ",")),
      !name.utf8.contains(UInt8(ascii: ":")), (3...Self.longestPair).contains(pair.utf8.count)
    else { throw .invalid("a variable is NAME=VALUE, at most \(Self.longestPair) bytes, without commas") }
    let command = Command.setCustomVariable(Text(pair))
    guard let question = dependencies.connection.submit(command, .interactive) else { throw .linkDown }
    switch await question.outcome() {
    case .replied(.ok): return try await showVariables()
    case .failed(.linkLost) where question.answer?.wasSent == false: throw .linkDown
    case .failed(.refused(.illegalArgument)):
      throw .radio("the radio has no variable \(name), or it does not take this value: meshpost radio variables")
    case .failed(.refused(let error)): throw .radio("the radio refuses: \(error?.description ?? "no reason given")")
    case .failed(.notSent): throw .radio("the radio does not answer; nothing was set")
    default: throw .radio("the radio did not answer; it may have set it anyway")
    }
  }
}
