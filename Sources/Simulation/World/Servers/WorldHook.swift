// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import JSON

/// The program that each gateway runs for its messages, in worlds with a hook. A process would have its own time, so the machine of the world runs this in
/// its place. Source: docs/hooks.md.
final class WorldHook {
  /// Its mood says what each run does: it hangs (`mute`), is late, prints without end (`portal`), exits with a code, is ended by a signal behind its work
  /// (`losesAnswers`), or cannot be run (`refuses`).
  var mood = Mood.well
  let ledger = Ledger()
  /// Events that it was given again after it had taken them.
  private(set) var repeated: [String] = []
  /// It answers an event again that it gets again, as a program without a memory does.
  private let answersAgain: Bool
  private var done: Set<String> = []
  private var answered: Set<String> = []
  private var runs = 0

  init(answersAgain: Bool) { self.answersAgain = answersAgain }

  /// Any program that is there: it is not run.
  static let configuration = """
    [[hook]]
    name = "bot"
    kinds = ["message", "gap"]
    run = ["/bin/true"]
    reply = true
    waited = true
    max_age_s = 0
    from = "start"
    \(geteuid() == 0 ? "user = \"nobody\"" : "")
    """

  /// A run takes a moment, in which the gateway may end.
  private static let moment: Duration = .milliseconds(40)

  /// As `ChildProcess.run`, for a gateway of this name.
  func run(
    _ program: ChildProcess.Program, of gateway: String, on loop: EventLoop
  ) async throws -> ChildProcess.Exit {
    runs += 1
    let (mood, number) = (mood, runs)
    let time: Duration =
      switch mood {
      case .mute, .deaf, .pingsOnly: program.limit
      case .slow(let milliseconds): .milliseconds(milliseconds)
      default: Self.moment
      }
    try await loop.sleep(for: min(time, program.limit))
    if time >= program.limit { return ChildProcess.Exit(code: nil, signal: SIGKILL, tookTooLong: true) }
    switch mood {
    case .portal: return ChildProcess.Exit(code: nil, signal: SIGKILL, saidTooMuch: true)
    case .refuses: return ChildProcess.Exit(code: 127)
    case .status(let code, _): return ChildProcess.Exit(code: Int32(code), errors: Array("it does not work\n".utf8))
    case .takesHalf where number.isMultiple(of: 2): return ChildProcess.Exit(code: EX_TEMPFAIL)
    case .dislikes(let code, let every) where Ledger.number(program.input)?.isMultiple(of: every) == true:
      return ChildProcess.Exit(code: Int32(code))
    default: break
    }
    ledger.take(program.input, of: gateway)
    if mood == .losesAnswers { return ChildProcess.Exit(code: nil, signal: SIGSEGV) }
    note(program.input, gateway)
    return ChildProcess.Exit(code: 0, output: answer(program.input, gateway))
  }

  private func note(_ input: [UInt8], _ gateway: String) {
    // `try?`: the ledger counts what cannot be read.
    guard let json = try? JSONValue(parsing: input), let epoch = json["epoch"]?.string, let seq = json["seq"]?.integer
    else { return }
    let name = "\(gateway) \(epoch) \(seq)"
    if !done.insert(name).inserted { repeated.append(name) }
  }

  /// Each third message of a person gets an answer, and some of these have bytes that no text has. No answer gets one.
  private func answer(_ input: [UInt8], _ gateway: String) -> [UInt8] {
    guard let number = Ledger.number(input), number.isMultiple(of: 3) else { return [] }
    let text = "s\(gateway)-\(number)"
    guard answered.insert(text).inserted || answersAgain else { return [] }
    return Array(text.utf8) + (number.isMultiple(of: 4) ? [0x20, 0xFF, 0xC3, 0x1B] : [10])
  }
}

extension Plan {
  /// A gateway may begin again before events that its hook has had.
  var changesCards: Bool {
    entries.contains { entry in
      switch entry.happening {
      case .changeCard, .cloneCard, .removeLog, .powerCut, .upgrade: true
      default: false
      }
    }
  }
}
