// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Messaging
import RadioSharing
import Relay
import Store
import Sync
import Timing
import Transport
import UntrustedText

/// Checks for all common problems of a gateway, and reports each with its remedy.
struct GatewayDoctor {
  /// Older firmware does not report counters: GET_STATS came with this version (docs/protocol/companion.md § 3).
  private static let oldestFirmware = FirmwareVersion(1, 11)
  /// Days before the end of a certificate's validity when it is reported.
  private static let fewDays: Int64 = 14

  let dependencies: ControlAPI.Dependencies

  func examine() -> [Finding] {
    let location = dependencies.store.location
    let folder = location.lastIndex(of: "/").map { String(location[..<$0]) } ?? "."
    let now = dependencies.loop.wallClock.seconds
    var findings = configuration()
    findings += radio()
    findings += [held(), clock()].compactMap { $0 } + store()
    findings += MachineDoctor(folder: folder).examine()
    for upstream in dependencies.relay.upstreams {
      findings += Self.upstream(upstream.status, now: now)
      if let words = upstream.updates?.trouble {
        findings.add("upstream \(upstream.status.name)", .warning, words, "`meshpost sync` shows what is behind.")
      }
    }
    for removed in dependencies.store.ifReadable({ try dependencies.store.removedUpstreams() }) ?? []
    where removed.pending > 0 || removed.givenUp > 0 {
      let deleted = removed.givenUp > 0 ? "; \(removed.givenUp) were deleted before it had them" : ""
      findings.add(
        "upstream \(removed.name)", .ok,
        "removed; \(removed.pending) events wait for it, and are sent when an upstream of this name is back\(deleted)")
    }
    for report in dependencies.proxy.reports { findings.append(Self.proxy(report)) }
    if let finding = dependencies.operations.webReport?.finding { findings.append(finding) }
    return findings
  }

  /// Checks the present file, because the next start uses it.
  private func configuration() -> [Finding] {
    let operations = dependencies.operations
    var findings = operations.configurationMistakes().map {
      Finding(
        "configuration", .failed, $0,
        "Correct it, or let `sudo meshpost setup` ask again; then `sudo systemctl reload meshpost`.")
    }
    if findings.isEmpty {
      findings.add("configuration", .ok, "\(dependencies.configurationFile) is valid")
    }
    findings += operations.overrides.map {
      Finding(
        "configuration", .ok,
        "\($0.setting) is \($0.value) by the document \($0.document), in place of \($0.configured) in the file")
    }
    findings += operations.openFiles.map { Finding("permission", .warning, $0.words, $0.remedy) }
    findings += operations.idleSettings.map {
      Finding(
        "configuration", .warning, $0, "Correct it, or add what it needs: `meshpost channels`, `meshpost upstream`.")
    }
    let later = operations.settingsForNextStart
    guard !later.isEmpty else { return findings }
    let words = "\(later.joined(separator: ", ")): what the file says counts from the next start on"
    return findings + [Finding("configuration", .warning, words, "`sudo systemctl restart meshpost`")]
  }

  // MARK: The radio

  private func radio() -> [Finding] {
    let connection = dependencies.connection
    guard case .up = connection.state else {
      guard case .waiting(let error) = connection.state else {
        return [Finding("radio", .warning, "\(connection.link.name): opening", "Try again in a few seconds.")]
      }
      return [Finding("radio", .failed, "\(connection.link.name): \(error)", error.remedy)]
    }
    var findings = [Finding("radio", .ok, "\(connection.link.name) is up")]
    if connection.unreadableFrames > 0 {
      findings.add(
        "radio", .warning, "\(connection.unreadableFrames) frames could not be read",
        "Check the cable, and with `fuser -v` whether another program uses the port.")
    }
    if connection.isScopeStuck {
      findings.add(
        "radio", .failed,
        "the radio does not go back to its default region: nothing is sent that would go to another",
        "Power-cycle the radio; if that does not help, update its firmware.")
    }
    let sync = Self.sync(dependencies.synchronizer.state, withheld: dependencies.synchronizer.withheld)
    let others = [firmware(), table(), itself(), commanders(), radioClock(), floods() ?? advert()]
    findings += ([sync] + others).compactMap { $0 }
    return findings + unfinishedClocks()
  }

  private func unfinishedClocks() -> [Finding] {
    let store = dependencies.store
    return store.clocksUnderWay.map { key in
      // Without the store there is no name.
      let name = store.ifReadable { try store.contact(key)?.contact.name.string } ?? nil
      return Finding(
        "nodes", .warning, "\(name ?? key.hex) may have been started anew to set its clock, which is not done",
        "`meshpost node clock \(Escaping.argument(name ?? key.hex)) --set --reboot` finishes it.")
    }
  }

  /// Parts of the sync that fail although the link is up. `nil`: none.
  static func sync(_ state: SyncState, withheld: Withheld?) -> Finding? {
    // A failure of the store, which belongs to no part of the sync, has its own finding.
    let failure: String? = if case .failed(let words, _?) = state { words } else { nil }
    guard let words = withheld?.words ?? failure else { return nil }
    return Finding(
      "sync", withheld == nil ? .warning : .failed, words,
      "It is tried again by itself. If it stays so, restart the radio (by its power or its button), then update its firmware."
    )
  }

  /// Messages held for another radio.
  private func held() -> Finding? {
    guard let count = dependencies.store.ifReadable({ try dependencies.store.heldCount() }), count > 0 else {
      return nil
    }
    return Finding(
      "outgoing", .warning, "\(count) messages are held for a radio that is not attached",
      "`meshpost sent` lists them; `meshpost sent adopt --all` sends them with this radio, `meshpost sent cancel --all` "
        + "cancels them.")
  }

  private func firmware() -> Finding? {
    guard let text = dependencies.connection.identity?.device?.details?.version.string else { return nil }
    guard FirmwareVersion(text) >= Self.oldestFirmware else {
      return Finding(
        "firmware", .warning, "\(text) is old: it does not report statistics",
        "Update the firmware: https://flasher.meshcore.co.uk")
    }
    return Finding("firmware", .ok, text)
  }

  private func table() -> Finding? {
    guard let most = dependencies.connection.identity?.device?.maxContacts, most > 0,
      let count = dependencies.store.ifReadable({ try dependencies.store.contactCount(onRadio: true) })
    else { return nil }
    let words = "\(count) of \(most) entries of the radio's contact table are in use"
    // If the gateway evicts nodes, only a full table shows that it cannot make room.
    let keepsRoom = dependencies.messaging.keeper.settings.evicts
    guard Int(count) * 100 >= most * (keepsRoom ? 100 : 95) else { return Finding("contacts", .ok, words) }
    return Finding(
      "contacts", .warning, words,
      keepsRoom
        ? "Nobody in it is old enough to leave ([contacts]), so nodes take turns: remove those that you do not need with `meshpost contact remove NAME`."
        : "New nodes cannot be added: enable [contacts] evict, or run `meshpost contact remove NAME`.")
  }

  /// A program may have added the radio to its own contacts.
  private func itself() -> Finding? {
    guard let key = dependencies.connection.identity?.info.key,
      dependencies.store.ifReadable({ try dependencies.store.contact(key) })?.onRadio == true
    else { return nil }
    return Finding(
      "contacts", .warning, "the radio has itself among its contacts", "`meshpost contact remove \(key.hex)`")
  }

  /// Nodes that may run commands on the radio. `nil`: none.
  private func commanders() -> Finding? {
    guard let all = dependencies.store.ifReadable({ try dependencies.store.commanders() }), !all.isEmpty else {
      return nil
    }
    let names = { (some: [Text]) in some.prefix(4).map(\.string).joined(separator: ", ") + (some.count > 4 ? ", …" : "")
    }
    let others = all.filter { !$0.isGranted }.map(\.name)
    guard !others.isEmpty else {
      return Finding("commands", .ok, "may run any command on the radio: \(names(all.map(\.name)))")
    }
    return Finding(
      "commands", .warning,
      "may run any command on the radio, which was not set here: \(names(others)) (contact flag 0x10; firmware from 1.18 on)",
      "`meshpost contact commands NAME off` takes it away, `on` says that it is wanted.")
  }

  private func radioClock() -> Finding? {
    guard let radio = dependencies.synchronizer.radioTime, dependencies.store.judgingNow.trusted else {
      return nil
    }
    let difference = Int64(radio) - dependencies.loop.wallClock.seconds
    guard abs(difference) > 60 else { return Finding("radio's clock", .ok, "right within a minute") }
    return Finding(
      "radio's clock", .warning, "\(abs(difference)) s \(difference > 0 ? "ahead" : "behind")",
      difference > 0
        ? "Only a power cycle of the radio can set it back."
        : "Run `meshpost sync --now` to set it, if radio.set_time allows that.")
  }

  /// Channel messages that are looked at, and fewer say nothing.
  private static let (mostFloods, fewestFloods) = (10, 3)

  /// Our floods are not passed on, but others' are. An advert would be dropped just the same.
  private func floods() -> Finding? {
    let ways = dependencies.synchronizer.ways
    guard ways.repeated.areOnlyScoped else { return nil }
    var sent: [OutgoingMessage] = []
    let since = dependencies.loop.wallClock.milliseconds - 7 * 86_400_000
    // A store that cannot be read has its own finding.
    dependencies.store.ifReadable {
      try dependencies.store.eachOutgoing(ofRadio: dependencies.store.radio, limit: 200) { message in
        if message.kind == .channel, message.state == .sent, message.created.milliseconds >= since {
          sent.append(message)
        }
        return true
      }
    }
    let newest = sent.suffix(Self.mostFloods)
    return Self.floods(
      ways.repeated, sent: newest.count, isAnyBack: newest.contains { $0.heard > 0 },
      ownRegion: ways.defaultRegion?.name.string)
  }

  /// `sent`: our newest channel messages; `isAnyBack`: a repeater was heard with one of them.
  static func floods(_ repeated: RepeatedFloods, sent: Int, isAnyBack: Bool, ownRegion: String?) -> Finding? {
    guard repeated.areOnlyScoped, sent >= fewestFloods, !isAnyBack else { return nil }
    let regions = repeated.regions.filter { $0 != ownRegion }.prefix(3)
    let known = regions.isEmpty ? "" : " (\(regions.joined(separator: ", ")))"
    let ours = ownRegion.map { "the radio's default region is \($0)" } ?? "the radio has no default region"
    return Finding(
      "regions", .warning,
      "repeaters around pass on packets of regions alone\(known), and none of our last \(sent) channel messages came back; \(ours)",
      "Set the region that they carry: `meshpost radio regions` asks them, then `meshpost radio set flood-scope="
        + "\(regions.first.map { Escaping.argument($0) } ?? "NAME")`.")
  }

  private func advert() -> Finding? {
    dependencies.messaging.routine.advert.report.map { Self.advert($0, now: dependencies.loop.wallClock.milliseconds) }
  }

  /// Nodes that have not heard this radio for this long, in milliseconds, may have evicted it from their tables.
  private static let longUnheard: Int64 = 30 * 86_400_000

  /// `now`: milliseconds since 1970.
  static func advert(_ report: SelfAdvert.Report, now: Int64) -> Finding {
    let offer = "`meshpost radio advert` announces it to direct neighbours, with `--flood` to the whole mesh"
    guard let at = report.at else {
      return Finding(
        "advert", .warning, "this gateway has not advertised the radio: nodes that do not know it cannot send to it",
        "\(offer).")
    }
    guard report.isCurrent else {
      return Finding(
        "advert", .warning, "the radio's name or position has changed since it was advertised", "\(offer).")
    }
    let days = max(0, now - at) / 86_400_000
    guard now - at >= longUnheard else {
      return Finding("advert", .ok, days == 0 ? "within a day" : "\(days) days ago")
    }
    return Finding(
      "advert", .warning, "the radio was last advertised \(days) days ago",
      "\(offer); radio.advert_every_h does it automatically.")
  }

  // MARK: The gateway

  private func clock() -> Finding {
    if dependencies.loop.wallClock.isSynchronised {
      guard let doubt = dependencies.store.clockDoubt else { return Finding("clock", .ok, "synchronised") }
      return Finding("clock", .warning, doubt.what, ClockProof.Doubt.remedy)
    }
    return Finding(
      "clock", .warning,
      "the machine's clock is not synchronised: times are marked as untrusted, and the radio's clock is not set",
      "See `timedatectl`; a Pi without a network needs a clock chip or a GPS receiver.")
  }

  private func store() -> [Finding] {
    let store = dependencies.store
    var findings: [Finding] = []
    if let failure = store.transactions.failure {
      findings.add("store", .failed, "\(failure)", failure.remedy)
    }
    if let missing = store.missingFile {
      findings.add("store", .failed, missing.words, missing.remedy)
    }
    if let loss = store.provenance.loss {
      let remedy =
        loss.cause == .conflict
        ? "If another gateway has this id, give one of them its own (docs/hub.md, \"One identity, two histories\"). After a change of cards nothing is to be done."
        : "Check the disk; `meshpostd --restore` restores a backup, or a copy beside the database (….lost-TIME, ….replaced-TIME)."
      findings.add("store", .warning, store.provenance.lossWords ?? "\(loss)", remedy)
    }
    // A store that cannot be read has its own finding.
    let (size, most) = (store.ifReadable({ try store.usedSize() }) ?? 0, store.maxBytes)
    let words = "\(size >> 20) of \(most >> 20) MiB"
    if size * 10 >= most * 9 {
      findings.add("store", .warning, words, "Raise store.max_size, or lower store.messages_max.")
    } else if findings.isEmpty {
      findings.add("store", .ok, words)
    }
    return findings
  }

  // MARK: Others

  /// `now`: seconds since 1970.
  static func upstream(_ status: UpstreamStatus, now: Int64) -> [Finding] {
    let subject = status.kind == "hook" ? status.name : "upstream \(status.name)"
    var findings: [Finding] = []
    let reason = status.reason ?? ""
    switch status.state {
    case .stopped:
      findings.add(subject, .failed, "stopped: \(reason)", "\(UpstreamStatus.remedyOfStop).")
    case .waiting:
      findings.add(subject, .warning, "waits: \(reason)", remedy(reason, status))
    case .paused:
      findings.add(
        subject, .warning, "paused by an operator", "`meshpost upstream resume \(Escaping.argument(status.name))`")
    case .idle, .sending:
      findings.add(subject, .ok, "\(status.pending) events pending")
      // A trouble that does not hold up events.
      if let reason = status.reason { findings.add(subject, .warning, reason) }
    }
    if status.deadLetters > 0 {
      let (refused, skipped) = (status.deadLetters - status.skippedLetters, status.skippedLetters)
      let words = [(refused, "events were refused"), (skipped, "events were skipped by an operator")]
      findings.add(
        subject, .warning, words.filter { $0.0 > 0 }.map { "\($0) \($1)" }.joined(separator: ", "),
        "`meshpost upstream dead` lists the reasons; `meshpost upstream retry \(Escaping.argument(status.name))` resends them."
      )
    }
    if let unpermitted = status.unpermitted {
      findings.add(
        subject, .warning, unpermitted.words,
        "If the server may do that, write `\(unpermitted.line)` into its [[upstream]]; one that `meshpost upstream add` made is removed and added again with --allow."
      )
    }
    if status.losses.givenUp > 0 {
      findings.add(
        subject, status.losses.ahead > 0 ? .warning : .ok,
        "\(status.losses.givenUp) events were deleted before it had them",
        status.losses.ahead > 0 ? "If the disk has room, raise store.journal_max_size." : nil)
    }
    if status.losses.tooOld > 0 {
      findings.add(
        subject, .ok,
        "\(status.losses.tooOld) events were left out as too old, or of an unknown age (max_age_s, waited)")
    }
    if UpstreamSettings.isOpen(status.url) {
      findings.add(
        subject, .warning, "\(status.url) is not encrypted: others can read messages, tokens and passwords",
        "Use https:// or mqtts://; in front of a hub put a TLS proxy.")
    }
    if let expiry = status.certificateExpiry, expiry - now < fewDays * 86400 {
      findings.add(
        subject, .warning, "its certificate expires in \(max(0, (expiry - now) / 86400)) days",
        "The server's operator has to renew it.")
    }
    return findings
  }

  private static func remedy(_ reason: String, _ status: UpstreamStatus) -> String {
    if reason.hasPrefix("no address for") {
      return "Check the name, and DNS with `resolvectl query`."
    }
    if reason.mentions("certificate") {
      return "Check the certificate: `openssl s_client -connect HOST:PORT`; for a private authority, set ca_file."
    }
    let (name, next) = (Escaping.argument(status.name), status.nextAttempt ?? 0)
    // The gateway's own pauses are shorter: the server has asked for this one.
    if next > Int64(RetryPolicy.limit.inSeconds) {
      return "The gateway tries again in \(next / 60) min, at once with `meshpost upstream resume \(name)`."
    }
    let waits = "The gateway retries automatically."
    return status.maySkip
      ? "\(waits) If the server fails over the same event each time: `meshpost upstream skip \(name)`" : waits
  }

  private static func proxy(_ report: CompanionProxy.Report) -> Finding {
    let subject = "proxy \(report.name)"
    guard let trouble = report.trouble else {
      return Finding(subject, .ok, "\(report.clients.count) clients at \(report.address)")
    }
    return Finding(
      subject, .failed, trouble,
      "Another program uses the port (`ss -ltnp`), or this machine does not have the address.")
  }
}

extension [Finding] {
  mutating func add(_ subject: String, _ state: Finding.State, _ words: String, _ remedy: String? = nil) {
    append(Finding(subject, state, words, remedy))
  }
}
