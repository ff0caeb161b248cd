// SPDX-License-Identifier: MIT

import Companion
import RadioSession

/// The result of a command.
public struct RadioAnswer: Sendable {
  public let outcome: RadioSession.Outcome
  /// The frame of the answer; empty if there was none.
  public let frame: [UInt8]
  /// False: the link was lost while the command waited, and the radio never got it.
  public let wasSent: Bool

  /// For a question to another node: whether the radio may have sent it.
  public var mayBeOnAir: Bool {
    switch outcome {
    case .replied(.sent), .failed(.timedOut): true
    case .failed(.linkLost): wasSent
    default: false
    }
  }

  init(outcome: RadioSession.Outcome, frame: [UInt8], wasSent: Bool = true) {
    (self.outcome, self.frame, self.wasSent) = (outcome, frame, wasSent)
  }

  /// Answer of a command that was not accepted because the link was lost.
  public static let linkLost = RadioAnswer(outcome: .failed(.linkLost), frame: [], wasSent: false)
  /// Answer of a command that was not sent, because the radio has refused its flood scope.
  public static let scopeRefused = RadioAnswer(outcome: .failed(.notSent(isRefused: true)), frame: [], wasSent: false)
}

/// A command that is queued for the radio or was sent to it. It gets exactly one answer, even if the link is lost.
///
/// `answer` is set when the frame is decoded. A task that waits for it continues later in that turn, after everything
/// that the same read brought.
public final class RadioQuestion {
  public let command: Command
  public private(set) var answer: RadioAnswer?
  private var waiting: [CheckedContinuation<Void, Never>] = []
  /// For a program that shares the radio: gets the frames of a contact list before the last one.
  let part: (([UInt8]) -> Void)?
  private let done: ((RadioAnswer) -> Void)?

  init(_ command: Command, part: (([UInt8]) -> Void)? = nil, _ done: ((RadioAnswer) -> Void)? = nil) {
    self.command = command
    self.part = part
    self.done = done
  }

  /// Returns the result. Cancellation does not end the wait: the radio still answers, and its answer is stored.
  public func outcome() async -> RadioSession.Outcome {
    while true {
      if let answer { return answer.outcome }
      await withCheckedContinuation { waiting.append($0) }
    }
  }

  func answered(_ answer: RadioAnswer) {
    self.answer = answer
    let resumed = waiting
    waiting = []
    for continuation in resumed { continuation.resume() }
    done?(answer)
  }
}
