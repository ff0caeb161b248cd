// SPDX-License-Identifier: MIT

import CLinux
import Companion
import EventLoop
import Glibc
import JSON
import Store
import Timing
import UntrustedText

/// Runs a program for each event: the event as JSON on its standard input. Source: docs/hooks.md.
///
/// It has the cursor of an upstream: a restart leaves nothing out, and a crash may repeat an event. It runs one program at a time, which keeps the
/// order.
final class HookCarrier: Carrier {
  let kind = "hook"
  let serverKeepsCount = false
  weak var commands: CommandIntake?
  private let settings: UpstreamSettings.HookSettings
  private let name: String
  /// False: `kinds` do not name `gap`, so the program might take a gap for something else.
  private let takesGaps: Bool
  private let store: Store
  private let loop: EventLoop
  private let log: Log
  private(set) var bytesSent: UInt64 = 0
  /// Replies that were not sent since the log last reported one, and the limit of these lines.
  private var (unsent, unsentLines) = (0, Ration.hourly)
  /// The same for gaps of which the program is not told: a damaged database may have one in the place of each event.
  private var (untoldGaps, gapLines) = (0, Ration(most: 8, oneIn: .seconds(3600)))

  /// The longest reply, in bytes; the rest is cut off. Its standard error is logged up to the same length.
  private static let maxOutput = 1024
  /// Programs that limit and run others; every Debian has them (util-linux).
  private static let (limiter, switcher) = ("/usr/bin/prlimit", "/usr/bin/setpriv")

  init(
    _ settings: UpstreamSettings.HookSettings, name: String, takesGaps: Bool, store: Store, on loop: EventLoop, log: Log
  ) {
    self.settings = settings
    self.name = name
    self.takesGaps = takesGaps
    self.store = store
    self.loop = loop
    self.log = log
  }

  var place: String { settings.run.first ?? "" }

  func greet() async -> Greeting { .ready }

  /// The program ends with the task that waits for it.
  func close() {}

  func carry(_ batch: Batch) async -> Verdict {
    guard let event = batch.events.first else { return .acknowledged(through: batch.last) }
    let through = batch.events.count > 1 ? event.seq : batch.last
    guard takesGaps || event.kind != EventKind.gap.rawValue else {
      tellGap(event.json)
      return .acknowledged(through: through)
    }
    let exit: ChildProcess.Exit
    do {
      exit = try await run(event)
    } catch is CancellationError {
      return .retry(reason: "ended by the gateway", after: nil)
    } catch {
      return .retry(reason: "\(place) cannot be started: \(error)", after: nil)
    }
    let verdict = verdict(exit, through: through)
    if case .acknowledged = verdict, settings.replies, await !reply(to: event, exit.output) {
      return .retry(reason: "the reply could not be stored", after: nil)
    }
    return verdict
  }

  private func tellGap(_ gap: JSONValue?) {
    guard gapLines.take(at: loop.now) else { return untoldGaps += 1 }
    let most = gap?["at_most"]?.integer.map { "at most \($0)" }
    let count = gap?["count"]?.integer.map { "\($0)" } ?? most ?? "nobody knows how many"
    let more = untoldGaps == 0 ? "" : ", and those of \(untoldGaps) other gaps since this was logged last"
    untoldGaps = 0
    log.warning(
      "\(name): missing events, which were deleted before it had them, damaged or lost with a database: \(count)\(more). Its `kinds` do not name gap: its program is not told"
    )
  }

  func test() async -> Verdict { await carry(Batch(testOf: store, at: Moment(loop.wallClock))) }

  // MARK: Running

  private func run(_ event: JournalEvent) async throws -> ChildProcess.Exit {
    let input = EventEnvelope.encode(event.withCopies(in: store), of: store) + [10]
    bytesSent &+= UInt64(input.count)
    return try await ChildProcess.run(
      arguments,
      environment: [
        "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "MESHPOST_SOCKET": settings.socket,
        "MESHPOST_HOOK": name, "MESHPOST_KIND": event.kind, "MESHPOST_MESSAGE": message(event),
      ], input: input, limit: settings.timeout, maxOutput: Self.maxOutput, on: loop)
  }

  /// The number of a received message, empty for other events: `meshpost send` sends an answer in its region.
  private func message(_ event: JournalEvent) -> String {
    guard event.kind == EventKind.message.rawValue else { return "" }
    return event.json?["id"]?.integer.map { "\($0)" } ?? ""
  }

  /// The command line: it limits memory, processor time, open files and processes, and the program cannot gain rights.
  private var arguments: [String] {
    let seconds = max(1, Int64(settings.timeout.inSeconds.rounded(.up)))
    var arguments = [
      Self.limiter, "--as=\(settings.memory)", "--cpu=\(seconds)", "--nofile=64", "--nproc=256", "--core=0", "--",
    ]
    // A service that cannot gain privileges passes this on to its children, and its filter of system calls does not permit setpriv.
    guard settings.otherUser != nil || meshpost_no_new_privileges() != 1 else { return arguments + settings.run }
    arguments += [Self.switcher, "--no-new-privs"]
    if let user = settings.otherUser {
      arguments += ["--reuid=\(user)", "--regid=\(Self.group(of: user))", "--clear-groups"]
    }
    return arguments + ["--"] + settings.run
  }

  private static func group(of user: String) -> gid_t { getpwnam(user)?.pointee.pw_gid ?? 65534 }

  private func verdict(_ ended: ChildProcess.Exit, through: Int64) -> Verdict {
    let last = String(decoding: ended.errors, as: UTF8.self).split(whereSeparator: \.isNewline).last
    let words = last.map { ": \($0)" } ?? ""
    if !words.isEmpty { log.info("\(name)\(words)") }
    if ended.tookTooLong {
      return .refused(status: 0, reason: "it took longer than \(Int(settings.timeout.inSeconds)) s and was ended")
    }
    if ended.saidTooMuch {
      return .refused(status: 0, reason: "it said more than \(ChildProcess.mostRead >> 20) MiB and was ended")
    }
    switch ended.code {
    case 0: return .acknowledged(through: through)
    case EX_TEMPFAIL: return .failing(reason: "it asks for a retry (exit code 75)\(words)")
    case 126, 127: return .retry(reason: "it cannot be run\(words)", after: nil)
    case let code?: return .refused(status: Int(code), reason: "exit code \(code)\(words)")
    case nil: return .refused(status: 0, reason: "signal \(ended.signal) ended it\(words)")
    }
  }

  // MARK: Replies

  /// The reply's id is the event's identity: a repeated event makes one reply. False: the disk refuses it.
  private func reply(to event: JournalEvent, _ output: [UInt8]) async -> Bool {
    let text = String(decoding: output, as: UTF8.self).trimmed
    guard !Visible.isBlank(text), event.kind == EventKind.message.rawValue, let body = event.json else { return true }
    guard let to = addressee(body) else {
      isUnsent("the message's sender is not certain")
      return true
    }
    let command = JSONWriter.object { json in
      json.field("id", "\(store.epoch).\(event.seq)")
      json.field("command", "send")
      json.field("to", to)
      json.field("text", text)
      json.field("split", true)
      json.field("expires_s", 600)
      json.field("answers", body["id"]?.integer)
    }
    guard let answer = await commands?.take(command) else { return false }
    // `try?`: an invalid answer is no refusal.
    if let words = (try? JSONValue(parsing: answer))?["error"]?.string { isUnsent(words) }
    return true
  }

  /// Anybody on the air can cause this, with each message.
  private func isUnsent(_ reason: String) {
    guard unsentLines.take(at: loop.now) else { return unsent += 1 }
    let more = unsent == 0 ? "" : ", and \(unsent) others since this was logged last"
    unsent = 0
    log.warning("\(name): a reply is not sent: \(reason)\(more) (logged at most once an hour)")
  }

  /// The channel's digest, or the sender's whole key: several nodes may have one name, or one key prefix, by which messages name their sender.
  private func addressee(_ body: JSONValue) -> String? {
    switch body["kind"]?.string {
    case "channel", "datagram": return body["channel"]?.string
    case "direct", "room":
      guard let prefix = body["sender"]?.string.flatMap({ Hex.bytes($0) }).flatMap({ KeyPrefix(bytes: $0) }) else {
        return nil
      }
      // An unreadable store cannot keep the reply either.
      let known = store.ifReadable { try store.contactKeys(beginningWith: prefix) } ?? []
      return known.count == 1 ? known[0].hex : nil
    default: return nil
    }
  }
}
