// SPDX-License-Identifier: MIT

import EarlierSchemas
import FoundationEssentials
import Timing

/// What happens in a world, and when: chosen by a seed, and shortened when a failure is narrowed down. Plans of worlds that have failed are kept.
struct Plan: Codable {
  struct Entry: Codable {
    /// Milliseconds since the beginning.
    var at: Int64
    var happening: Happening
  }

  var seed: UInt64
  var days: Int
  /// Hours beyond the days; `nil`: none.
  var hours: Int?
  var hasTwo: Bool
  /// A proxy before the hub knows no WebSockets.
  var refusesLinks: Bool?
  /// The gateways have another hub, which knows nothing of the first.
  var hasOtherHub: Bool?
  /// Connections are pairs of sockets, which cost less than TCP; one seed in sixteen has TCP.
  var hasPairs: Bool?
  /// Each gateway is on a mesh of its own, and sends there what the hubs have from the other. Two gateways on one mesh would send all of it twice
  /// (docs/hub-protocol.md, "Messages of other places").
  var exchanges: Bool?
  /// The gateways run a program for each message.
  var hasHook: Bool?
  var entries: [Entry]

  /// How long the world's faults last, in milliseconds.
  var length: Int64 { Int64(days * 24 + (hours ?? 0)) * 3_600_000 }

  /// A card then forgets what was not synced.
  var hasPowerCuts: Bool { entries.contains { if case .powerCut = $0.happening { true } else { false } } }
}

/// Something that happens to a part of the world. Gateways are numbers; numbers in `copy` name copies.
enum Happening: CustomStringConvertible, Codable {
  enum Part: String, CaseIterable, Codable {
    case hub, broker, webhook
    case otherHub = "other hub"
    case hook = "hook/bot"
  }

  /// So many messages for everybody on the channel, or for one gateway's radio.
  case channelMessages(Int)
  case directMessages(gateway: Int, Int)
  /// A person sends to a node, or to the channel.
  case send(gateway: Int, toChannel: Bool, expiresAfter: Int?)
  case cancelSending(gateway: Int)
  case resume(gateway: Int)
  /// Somebody wants the event skipped over which the server fails, or all dead letters sent again.
  case skip(gateway: Int, Part)
  case retry(gateway: Int, Part)
  case command(gateway: Int)

  case mood(Part, Mood)
  case hangUp(Part)
  /// The connections that are open take nothing any more, and answer pings.
  case stick(Part)

  case copyHub(Int)
  case putBackHub(Int?)
  case restartHub
  case hubClock(Int64)

  /// The program was one with this schema until now, and ends; the present one upgrades its database.
  case upgrade(gateway: Int, from: Int, FlushCut?)
  /// The same of the hub.
  case upgradeHub(from: Int, FlushCut?)
  /// A program that is too old for the database is tried.
  case rollBack(gateway: Int)
  case rollBackHub
  /// A copy is one that a program with this schema has made.
  case ageCopy(gateway: Int, Int, to: Int)
  case ageHubCopy(Int, to: Int)

  case kill(gateway: Int, downFor: Int)
  case killBeforeCommit(gateway: Int)
  case restart(gateway: Int)
  case powerCycle(gateway: Int)
  /// As `powerCycle`, and the card has any part of what was not synced.
  case powerCut(gateway: Int, loss: UInt64)
  /// As SIGSTOP does: it does nothing, and its time passes.
  case stop(gateway: Int, forSeconds: Int)
  case diskFailsOnce(gateway: Int)
  case disk(gateway: Int, fails: Bool)
  case copyCard(gateway: Int, Int)
  case changeCard(gateway: Int, Int?)
  case cloneCard
  /// Somebody removes the database's log after a kill.
  case removeLog(gateway: Int, Int)
  case clock(gateway: Int, Int64, trusted: Bool)

  case unplug(gateway: Int, forSeconds: Int)
  case cutLink(gateway: Int, afterBytes: Int)
  case silence(gateway: Int, forSeconds: Int)
  case garbage(gateway: Int)
  case wrongReply(gateway: Int)
  case lateReplies(gateway: Int, forSeconds: Int)
  case doubledReply(gateway: Int)
  case lostReply(gateway: Int)
  case swappedReplies(gateway: Int)
  case rebootRadio(gateway: Int)
  case otherRadio(gateway: Int)
  case air(loss: Double)

  case reload(gateway: Int, isWrong: Bool)
  /// A page of the gateway is open.
  case page(gateway: Int, forSeconds: Int)

  /// Somebody with the gateway's token writes so many events to the hub: in the gateway's own epoch, or in another.
  case stolenToken(gateway: Int, Int, ownEpoch: Bool)

  var description: String {
    func name(_ gateway: Int) -> String { "gateway \(gateway == 0 ? "A" : "B")" }
    return switch self {
    case .channelMessages(let count): "\(count) messages on the channel"
    case .directMessages(let gateway, let count): "\(count) messages for \(name(gateway))"
    case .send(let gateway, let toChannel, let expires):
      "\(name(gateway)): somebody sends to \(toChannel ? "the channel" : "a node")\(expires.map { ", for \($0) s" } ?? "")"
    case .cancelSending(let gateway): "\(name(gateway)): somebody cancels all that waits"
    case .resume(let gateway): "\(name(gateway)): somebody resumes all upstreams"
    case .skip(let gateway, let part): "\(name(gateway)): somebody skips an event of the \(part.rawValue)"
    case .retry(let gateway, let part): "\(name(gateway)): somebody retries dead letters of the \(part.rawValue)"
    case .command(let gateway): "an operator commands \(name(gateway)) to send"
    case .mood(let part, let mood): "the \(part.rawValue): \(mood)"
    case .stick(let part): "the \(part.rawValue)'s open connections answer nothing but pings any more"
    case .hangUp(let part): "the \(part.rawValue) hangs up"
    case .copyHub(let number): "the hub's database is copied (\(number))"
    case .putBackHub(let number):
      number.map { "the hub is put back to copy \($0)" } ?? "another, empty hub has the hub's address"
    case .restartHub: "the hub starts again"
    case .hubClock(let milliseconds): "the hub's clock: \(milliseconds / 1000) s"
    case .upgrade(let gateway, let version, let cut):
      "\(name(gateway)) is upgraded from schema \(version)\(cut.map { ", and cut at flush \($0.flush)" } ?? "")"
    case .upgradeHub(let version, let cut):
      "the hub is upgraded from schema \(version)\(cut.map { ", and cut at flush \($0.flush)" } ?? "")"
    case .rollBack(let gateway): "\(name(gateway)): somebody tries an older program"
    case .rollBackHub: "somebody tries an older hub"
    case .ageCopy(let gateway, let number, let version):
      "\(name(gateway)): copy \(number) of its card is one with schema \(version)"
    case .ageHubCopy(let number, let version): "copy \(number) of the hub's database is one with schema \(version)"
    case .kill(let gateway, let seconds): "\(name(gateway)) is killed, for \(seconds) s"
    case .killBeforeCommit(let gateway): "\(name(gateway)) is killed before its next commit"
    case .restart(let gateway): "\(name(gateway)) ends and starts"
    case .powerCycle(let gateway): "\(name(gateway)): its machine starts again"
    case .powerCut(let gateway, let loss): "\(name(gateway)): its power is cut (\(loss))"
    case .stop(let gateway, let seconds): "\(name(gateway)): its program is stopped for \(seconds) s"
    case .diskFailsOnce(let gateway): "\(name(gateway)): its disk fails once"
    case .stolenToken(let gateway, let count, let ownEpoch):
      "somebody writes \(count) events with \(name(gateway))'s token, in \(ownEpoch ? "its" : "another") epoch"
    case .disk(let gateway, let fails): "\(name(gateway)): its disk \(fails ? "fails" : "works")"
    case .copyCard(let gateway, let number): "\(name(gateway)): its card is copied (\(number))"
    case .changeCard(let gateway, let number):
      "\(name(gateway)): \(number.map { "copy \($0) of its card is put back" } ?? "an empty card")"
    case .removeLog(let gateway, _): "\(name(gateway)) is killed, and its database's log removed"
    case .cloneCard: "gateway A's card is cloned for gateway C"
    case .clock(let gateway, let milliseconds, let trusted):
      "\(name(gateway)): its clock: \(milliseconds / 1000) s\(trusted ? "" : ", not synchronised")"
    case .unplug(let gateway, let seconds): "\(name(gateway)): its radio is unplugged for \(seconds) s"
    case .cutLink(let gateway, let bytes): "\(name(gateway)): the link to its radio ends after \(bytes) bytes"
    case .silence(let gateway, let seconds): "\(name(gateway)): its radio is silent for \(seconds) s"
    case .garbage(let gateway): "\(name(gateway)): its radio sends garbage"
    case .wrongReply(let gateway): "\(name(gateway)): its radio sends a wrong reply"
    case .lateReplies(let gateway, let seconds): "\(name(gateway)): its radio's replies are late, for \(seconds) s"
    case .doubledReply(let gateway): "\(name(gateway)): a reply of its radio arrives twice"
    case .lostReply(let gateway): "\(name(gateway)): a reply of its radio is lost"
    case .swappedReplies(let gateway): "\(name(gateway)): a frame of its radio overtakes another"
    case .page(let gateway, let seconds): "\(name(gateway)): somebody opens its page, for \(seconds) s"
    case .rebootRadio(let gateway): "\(name(gateway)): its radio starts again"
    case .otherRadio(let gateway): "\(name(gateway)): the other radio is at its port"
    case .air(let loss): "the air loses \(Int(loss * 100)) %"
    case .reload(let gateway, let isWrong): "\(name(gateway)) reloads \(isWrong ? "a wrong" : "its") configuration"
    }
  }
}

extension Plan {
  /// A kept plan; `nil`: this is none.
  init?(json: Data) {
    // `try?`: then it is none.
    guard let plan = try? JSONDecoder().decode(Plan.self, from: json) else { return nil }
    self = plan
  }

  var json: String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = .sortedKeys
    // `try!`: enumerations and whole numbers can be written.
    return String(decoding: try! encoder.encode(self), as: UTF8.self)
  }

  /// The plan of a seed, for so many hours.
  init(seed: UInt64, hours: Int) {
    var random = SeededRandom(seed: seed)
    let length = Int64(hours) * 3_600_000
    let hasTwo = Int.random(in: 0..<3, using: &random) == 0
    let hasOtherHub = Int.random(in: 0..<5, using: &random) == 0
    let parts: [Happening.Part] = [.hub, .broker, .webhook] + (hasOtherHub ? [.otherHub] : [])
    var entries: [Entry] = []
    var copies = 0
    /// Most defects need two things at a time: a third of all times are just behind those of others.
    func time(_ from: Int64 = 0) -> Int64 {
      let any = Int64.random(in: from...max(from, length - 1), using: &random)
      guard let other = entries.randomElement(using: &random), other.at >= from,
        Int.random(in: 0..<3, using: &random) == 0
      else { return any }
      return other.at + Int64.random(in: 0...[20, 2000, 60_000].randomElement(using: &random)!, using: &random)
    }
    func gateway() -> Int { hasTwo ? Int.random(in: 0...1, using: &random) : 0 }
    func seconds() -> Int { [5, 40, 200, 900, 5000, 40_000].randomElement(using: &random)! }
    func add(_ happening: Happening, _ at: Int64? = nil) {
      entries.append(Entry(at: at ?? time(), happening: happening))
    }

    for _ in 0..<Int.random(in: 15...40, using: &random) {
      let isBurst = Int.random(in: 0..<12, using: &random) == 0
      let count = isBurst ? Int.random(in: 20...60, using: &random) : Int.random(in: 1...3, using: &random)
      add(Bool.random(using: &random) ? .channelMessages(count) : .directMessages(gateway: gateway(), count))
    }
    for _ in 0..<Int.random(in: 2...12, using: &random) {
      let expires = [nil, nil, 60, 3600].randomElement(using: &random)!
      add(.send(gateway: gateway(), toChannel: Bool.random(using: &random), expiresAfter: expires))
    }
    for _ in 0..<Int.random(in: 0...3, using: &random) { add(.cancelSending(gateway: gateway())) }
    for _ in 0..<Int.random(in: 0...3, using: &random) { add(.resume(gateway: gateway())) }
    for _ in 0..<Int.random(in: 0...3, using: &random) { add(.command(gateway: gateway())) }

    // A seed has few kinds of faults, many of each: most defects need two or three together.
    let kinds = (0..<Int.random(in: 1...4, using: &random)).map { _ in Int.random(in: 0..<14, using: &random) }
    for kind in kinds {
      for _ in 0..<Int.random(in: 1...5, using: &random) {
        let (at, gateway) = (time(), gateway())
        switch kind {
        case 0, 1:
          let part = parts.randomElement(using: &random)!
          add(.mood(part, .ofServer(&random)), at)
          add(.mood(part, .well), at + Int64(seconds()) * 1000)
        case 2:
          add(
            [
              .kill(gateway: gateway, downFor: seconds()), .killBeforeCommit(gateway: gateway),
              .killBeforeCommit(gateway: gateway), .restart(gateway: gateway), .powerCycle(gateway: gateway),
              .stop(gateway: gateway, forSeconds: seconds()),
            ].randomElement(using: &random)!, at)
        case 3:
          let faults: [Happening] = [
            .unplug(gateway: gateway, forSeconds: seconds()),
            .cutLink(gateway: gateway, afterBytes: Int.random(in: 1...400, using: &random)),
            .silence(gateway: gateway, forSeconds: seconds()), .garbage(gateway: gateway),
            .wrongReply(gateway: gateway), .rebootRadio(gateway: gateway), .otherRadio(gateway: gateway),
            .air(loss: [0, 0.1, 0.5].randomElement(using: &random)!),
          ]
          add(faults.randomElement(using: &random)!, at)
        case 4:
          copies += 1
          add(.copyHub(copies), at)
          add(
            [.putBackHub(copies), .putBackHub(copies), .putBackHub(nil), .restartHub].randomElement(using: &random)!,
            time(at + 1))
        case 5:
          copies += 1
          add(.copyCard(gateway: gateway, copies), at)
          add(
            [
              .changeCard(gateway: gateway, copies), .changeCard(gateway: gateway, copies),
              .changeCard(gateway: gateway, nil),
            ]
            .randomElement(using: &random)!, time(at + 1))
        case 6:
          let year: Int64 = 31_536_000_000
          let step = [-20 * year, -year, -3_600_000, -2000, 2000, 3_600_000, year, 20 * year].randomElement(
            using: &random)!
          if Int.random(in: 0..<3, using: &random) == 0 {
            add(.hubClock(step), at)
          } else {
            add(.clock(gateway: gateway, step, trusted: Bool.random(using: &random)), at)
          }
        case 7 where Bool.random(using: &random): add(.diskFailsOnce(gateway: gateway), at)
        case 7:
          add(.disk(gateway: gateway, fails: true), at)
          add(.disk(gateway: gateway, fails: false), at + Int64(seconds()) * 1000)
        case 9:
          let seconds = [1, 3, 20].randomElement(using: &random)!
          let faults: [Happening] = [
            .lateReplies(gateway: gateway, forSeconds: seconds), .doubledReply(gateway: gateway),
            .lostReply(gateway: gateway), .swappedReplies(gateway: gateway),
          ]
          add(faults.randomElement(using: &random)!, at)
        case 10: add(.powerCut(gateway: gateway, loss: random.next() >> 12), at)
        case 13:
          let (version, ofHub) = (
            EarlierSchema.gateway.versions.randomElement(using: &random)!,
            EarlierSchema.hub.versions.randomElement(using: &random)!
          )
          let loss = Bool.random(using: &random) ? random.next() >> 12 : nil
          let cut = FlushCut(flush: Int.random(in: 0..<24, using: &random), loss: loss)
          let cutIfAny = Bool.random(using: &random) ? cut : nil
          if Bool.random(using: &random) {
            // Work waits.
            let part = parts.randomElement(using: &random)!
            add(.mood(part, .refuses), max(0, at - 600_000))
            add(.channelMessages(5), max(0, at - 300_000))
            add(.send(gateway: gateway, toChannel: false, expiresAfter: nil), max(0, at - 20))
            add(.mood(part, .well), at + Int64(seconds()) * 1000)
          }
          switch Int.random(in: 0..<8, using: &random) {
          case 0: add(.rollBack(gateway: gateway), at)
          case 1: add(.rollBackHub, at)
          case 2, 3: add(.upgradeHub(from: ofHub, cutIfAny), at)
          case 4:
            copies += 1
            add(.copyHub(copies), at)
            add(.ageHubCopy(copies, to: ofHub), at)
            add(.upgradeHub(from: ofHub, cutIfAny), at)
            add(.putBackHub(copies), time(at + 1))
          case 5:
            copies += 1
            add(.copyCard(gateway: gateway, copies), at)
            add(.ageCopy(gateway: gateway, copies, to: version), at)
            add(.upgrade(gateway: gateway, from: version, cutIfAny), at)
            add(.changeCard(gateway: gateway, copies), time(at + 1))
          default: add(.upgrade(gateway: gateway, from: version, cutIfAny), at)
          }
        case 11: add(.stick(parts.randomElement(using: &random)!), at)
        case 8:
          let (count, ownEpoch) = (Int.random(in: 1...5, using: &random), Bool.random(using: &random))
          add(.stolenToken(gateway: gateway, count, ownEpoch: ownEpoch), at)
        default:
          add(.reload(gateway: gateway, isWrong: Bool.random(using: &random)), at)
          add(.hangUp(parts.randomElement(using: &random)!))
        }
      }
    }
    if Int.random(in: 0..<25, using: &random) == 0 { add(.cloneCard) }
    if Int.random(in: 0..<4, using: &random) == 0 {
      for _ in 0..<Int.random(in: 1...4, using: &random) { add(.page(gateway: gateway(), forSeconds: seconds())) }
    }
    let refusesLinks = Int.random(in: 0..<5, using: &random) == 0
    if Int.random(in: 0..<6, using: &random) == 0 {
      let (part, at) = (Bool.random(using: &random) ? Happening.Part.webhook : .broker, time())
      let status = [400, 413, 422, 500, 500, 503].randomElement(using: &random)!
      add(.mood(part, .dislikes(status: status, every: [2, 3, 5].randomElement(using: &random)!)), at)
      if Bool.random(using: &random) { add(.mood(part, .well), at + Int64(seconds()) * 1000) }
      add(.channelMessages(Int.random(in: 1...8, using: &random)), at + 1000)
      for _ in 0..<Int.random(in: 0...4, using: &random) {
        add(.skip(gateway: gateway(), part), at + Int64(seconds()) * 1000)
      }
      for _ in 0..<Int.random(in: 0...2, using: &random) { add(.retry(gateway: gateway(), part), time(at)) }
    }
    let exchanges = hasTwo && Bool.random(using: &random)
    if exchanges {
      entries.removeAll { entry in
        switch entry.happening {
        case .otherRadio, .cloneCard: true
        default: false
        }
      }
    }
    let hasHook = Int.random(in: 0..<4, using: &random) == 0
    for _ in 0..<(hasHook ? Int.random(in: 0...3, using: &random) : 0) {
      let at = time()
      add(.mood(.hook, .ofHook(&random)), at)
      if Int.random(in: 0..<4, using: &random) > 0 { add(.mood(.hook, .well), at + Int64(seconds()) * 1000) }
    }
    if Int.random(in: 0..<10, using: &random) == 0 {
      copies += 1
      add(.removeLog(gateway: gateway(), copies))
    }
    self.init(
      seed: seed, days: hours / 24, hours: hours.isMultiple(of: 24) ? nil : hours % 24, hasTwo: hasTwo,
      refusesLinks: refusesLinks, hasOtherHub: hasOtherHub, hasPairs: !seed.isMultiple(of: 16), exchanges: exchanges,
      hasHook: hasHook,
      entries: entries.enumerated().sorted { ($0.element.at, $0.offset) < ($1.element.at, $1.offset) }.map(\.element))
  }
}
