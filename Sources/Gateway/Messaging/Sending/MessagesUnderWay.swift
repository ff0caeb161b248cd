// SPDX-License-Identifier: MIT

import Delivery
import EventLoop
import Sync

struct Attempt {
  let number: UInt8
  let route: DeliveryRoute
  let airtime: Int64
}

/// Messages under way, each with the task that makes its attempts: at most one more than the machine lets wait for acknowledgements.
struct MessagesUnderWay {
  /// A message's attempts, as the machine allows them.
  private struct UnderWay {
    let attempts: Mailbox<Attempt>
    let task: LoopTask
  }

  private var messages: [Int64: UnderWay] = [:]
  /// The message that was handed to the radio, until the machine has the radio's answer.
  private(set) var handed: (id: Int64, question: RadioQuestion)?

  var count: Int { messages.count }
  var isEmpty: Bool { messages.isEmpty }

  /// `begin`: begins the task that makes the message's attempts, with the first.
  mutating func add(_ attempt: Attempt, of id: Int64, _ begin: (Mailbox<Attempt>) -> LoopTask) {
    let attempts = messages[id]?.attempts ?? Mailbox(bound: 1)
    if messages[id] == nil { messages[id] = UnderWay(attempts: attempts, task: begin(attempts)) }
    _ = attempts.put(attempt)
  }

  /// The message has ended, or waits for its turn again.
  mutating func end(_ id: Int64) { messages.removeValue(forKey: id)?.attempts.finish() }

  /// The messages under way belong to another radio, or the program ends.
  mutating func forget() {
    for message in messages.values { message.task.cancel() }
    (messages, handed) = ([:], nil)
  }

  mutating func gave(_ id: Int64, _ question: RadioQuestion) { handed = (id, question) }

  /// Removes and returns the radio's answer to the handed message.
  mutating func takeAnswer() -> (id: Int64, answer: RadioAnswer)? {
    guard let handed, let answer = handed.question.answer else { return nil }
    self.handed = nil
    return (handed.id, answer)
  }
}
