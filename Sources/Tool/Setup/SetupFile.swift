// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import EventLoop
import Glibc
import HTTP
import UntrustedText

/// The files that `meshpost setup` writes: the configuration, and secrets beside it.
extension Setup {
  struct Upstream {
    var name: String
    var url: String
    /// Empty: it is removed.
    var user: String?
    /// A location, or the name of a credential; empty: it is removed.
    var tokenFile: String?

    /// What it may command and edit; `nil`: as configured, and nothing if it is new.
    var allow: [String]?

    /// Where it starts if it is new: `now` or `start`, as in the configuration; `nil`: as configured, or now.
    var from: String?

    /// Whether the user gave the name.
    var isNamed = true

    var kind: String { isBroker ? "mqtt" : "hub" }
    var tokenKey: String { isBroker ? "password_file" : "token_file" }
    var isBroker: Bool { ["mqtt:", "mqtts:", "ws:", "wss:"].contains { url.hasPrefix($0) } }

    init(name: String, url: String, tokenFile: String? = nil) {
      (self.name, self.url, self.tokenFile) = (name, ServerURL.plain(url), tokenFile)
    }

    /// `text`: `[NAME=]URL`; `tokens`, `users`, `rights` and `starts`: `[NAME=]…`, without a name for the first.
    init(
      _ text: String, number: Int, tokens: [String] = [], users: [String] = [], rights: [String] = [],
      starts: [String] = []
    ) throws {
      let (name, url) = Setup.split(text)
      self.url = ServerURL.plain(url)
      self.name = name ?? (number == 1 ? "hub" : "hub\(number)")
      isNamed = name != nil
      if name == nil, isBroker { self.name = number == 1 ? "broker" : "broker\(number)" }
      guard url.contains("://") else { throw ValidationError("--upstream \(text): expected [NAME=]URL") }
      guard Setup.isName(self.name) else { throw ValidationError("--upstream \(text): \(Setup.names)") }
      tokenFile = Setup.of(self.name, isFirst: number == 1, tokens)
      if tokenFile == "" { throw ValidationError("--token-file: the name of the file is empty") }
      user = Setup.of(self.name, isFirst: number == 1, users)
      allow = Setup.of(self.name, isFirst: number == 1, rights).map(UpstreamRights.read)
      from = Setup.of(self.name, isFirst: number == 1, starts)
      if let from { try UpstreamStart.check(from) }
    }

    var toml: String {
      var lines = [
        "[[upstream]]", "name = \(Setup.quoted(name))", "kind = \"\(kind)\"",
        "url = \(Setup.quoted(url))",
      ]
      if let user, !user.isEmpty { lines.append("user = \(Setup.quoted(user))") }
      if let tokenFile, !tokenFile.isEmpty { lines.append("\(tokenKey) = \(Setup.quoted(tokenFile))") }
      if let from { lines.append("from = \(Setup.quoted(from))") }
      lines.append("allow = \(Setup.quoted(allow ?? []))")
      return lines.joined(separator: "\n") + "\n\n"
    }
  }

  /// Whether the text is a valid name of an upstream or of the gateway. It is also the name of files.
  static func isName(_ name: String) -> Bool {
    (1...64).contains(name.utf8.count) && !name.begins(with: ".") && name.unicodeScalars.allSatisfy(isOfNames)
  }

  static let names = "a name has 1 to 64 letters, digits, `.`, `_` and `-`, and does not begin with `.`"

  /// The nearest valid name; empty: there is none.
  static func nearestName(_ text: String) -> String {
    let name = text.unicodeScalars.map { isOfNames($0) ? String($0) : "-" }.joined().cut(toBytes: 64)
    return isName(name) ? name : ""
  }

  private static func isOfNames(_ scalar: Unicode.Scalar) -> Bool {
    scalar.isASCII && (scalar.properties.isAlphabetic || (0x30...0x39).contains(scalar.value) || "._-".has(scalar))
  }

  /// The folder for secrets.
  private var credentials: String { Folder.of(config) + "/credentials" }

  /// Notes a secret, which is stored with the configuration. Returns its name.
  mutating func keep(_ secret: String, as name: String) -> String {
    secrets[name] = secret
    return name
  }

  /// Stores the secrets, which only root can read; systemd passes them to the gateway. It keeps the file of an earlier secret, because the new one
  /// may be mistyped.
  private func storeSecrets() throws {
    if !secrets.isEmpty { try Folder.make(credentials) }
    for (name, secret) in secrets.sorted(by: { $0.key < $1.key }) {
      let file = "\(credentials)/\(name)"
      let old = access(file, F_OK) == 0 ? try InputFile.text(file) : nil
      if let old, old.isExactly(secret + "\n") { continue }
      let saved = SavedFiles(file)
      if old != nil { print("\(file) is replaced; the previous secret is saved as \(try saved.save())") }
      try OutputFile.write(secret + "\n", to: file, isSecret: true)
      saved.removeOldest()
    }
  }

  /// Why the gateway would not send the token; `nil`: it can be one.
  static func trouble(ofToken token: String) -> String? {
    let isOne = !token.isEmpty && token.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
    return isOne ? nil : "a token has only letters, digits and signs of ASCII, and no blank"
  }

  /// Notes the secret in a file of the user, so that the service gets it as a credential. A name without a slash is a file of the current folder, if
  /// there is one, and otherwise a credential that is stored already.
  private mutating func adopted(_ file: String?, as name: String, isToken: Bool = false) throws -> String? {
    guard let file, !file.isEmpty, secrets[file] == nil, file.has("/") || access(file, F_OK) == 0 else { return file }
    // Only the service manager may read it there.
    if Folder.resolved(Folder.of(file)).isExactly(Folder.resolved(credentials)) { return file.pieces(at: "/").last }
    guard let line = try InputFile.firstLine(file) else {
      throw Failure.say("\(file): cannot be read, or its first line is empty", EX_NOINPUT)
    }
    // Some editors begin a file with a mark of its encoding.
    let text = line.begins(with: "\u{FEFF}") ? String(decoding: line.utf8.dropFirst(3), as: UTF8.self) : line
    let secret = isToken ? text.trimmed : text
    if isToken, let trouble = Self.trouble(ofToken: secret) {
      throw Failure.say("\(file): \(trouble). Nothing was changed", EX_DATAERR)
    }
    return keep(secret, as: name)
  }

  /// What an earlier setup has left that was killed: it may hold a secret.
  func removeLeft() {
    Unfinished.removeLeft(in: Folder.of(config), partsOf: Array(config.pieces(at: "/").suffix(1)))
    Unfinished.removeLeft(in: credentials)
  }

  mutating func writeConfiguration() throws {
    for place in upstreams.indices {
      let upstream = upstreams[place]
      upstreams[place].tokenFile = try adopted(
        upstream.tokenFile, as: "\(upstream.name).token", isToken: !upstream.isBroker)
    }
    pinFile = try adopted(pinFile, as: Self.nameOfPIN)
    let text = try settled()
    try storeSecrets()
    let old = try InputFile.text(config)
    guard old.map({ !text.isExactly($0) }) ?? true else { return print("\(config) is up to date") }
    let saved = SavedFiles(config)
    let kept = try old.map { _ in try saved.save() }
    try write(text)
    saved.removeOldest()
    print("wrote \(config)" + (kept.map { "; the previous file is saved as \($0)" } ?? ""))
    try forgetPIN(text)
  }

  /// The text to write, checked by the gateway. It asks again for answers that the gateway refuses.
  private mutating func settled() throws -> String {
    for _ in 0..<Dialogue.tries {
      let text = try merged() ?? self.text
      let check = try trial(of: text)
      // A gateway without its PIN starts, but does not reach the radio.
      let mistakes = check.mistakes + check.warnings.filter { $0.key == "radio.pin_file" }
      guard !mistakes.isEmpty else {
        for warning in check.warnings { Console.error("warning: \(warning.words)") }
        return text
      }
      for mistake in mistakes { Console.error("meshpost: \(mistake.words)") }
      let parsed = try ConfigurationText(text, location: config)
      for mistake in mistakes {
        guard !isUnattended, try ask(again: mistake, in: parsed) else {
          throw Failure.say("the gateway would refuse this configuration: nothing was changed", EX_CONFIG)
        }
      }
    }
    throw Failure.say("no valid answer; nothing was changed", EX_CONFIG)
  }

  /// Lets the daemon check `text` with the new secrets, before anything is written.
  private func trial(of text: String) throws -> ConfigurationCheck {
    try Folder.temporary(in: Folder.of(config)) { folder in
      let file = "\(folder)/\(Self.nameOfTrial)"
      let typed = secrets.keys.map { "\(folder)/\($0)" } + [file]
      // Nothing is there yet: a signal finds them by these names.
      for place in typed { Unfinished.noting { ((), location: place) } }
      defer { for place in typed { Unfinished.forget(place) } }
      for name in Files.names(in: credentials) where secrets[name] == nil && !name.isExactly(Self.nameOfTrial) {
        let link = "\(folder)/\(name)"
        Unfinished.noting { (symlink(Folder.resolved("\(credentials)/\(name)"), link), location: link) }
      }
      for (name, secret) in secrets { try OutputFile.write(secret + "\n", to: "\(folder)/\(name)", isSecret: true) }
      try OutputFile.write(text, to: file, isSecret: true)
      return try ConfigurationCheck(file, credentials: folder, for: credentials)
    }
  }

  /// Deletes the stored PIN of a Bluetooth radio that is no longer in the configuration.
  private func forgetPIN(_ text: String) throws {
    let file = "\(credentials)/\(Self.nameOfPIN)"
    let named = try ConfigurationText(text, location: config).string("radio", "pin_file")
    guard named != Self.nameOfPIN, named != file, access(file, F_OK) == 0 else { return }
    guard unlink(file) == 0 else { throw Failure.file(file) }
    print("removed \(file), the PIN of another radio")
  }

  private static let nameOfTrial = "meshpostd.toml"
  static let nameOfPIN = "radio.pin"

  /// The existing configuration with the given settings; `nil` without an existing one.
  private func merged() throws -> String? {
    guard var text = existing else { return nil }
    if let name { try text.set("gateway", "id", name) }
    if let link { try text.set("radio", "link", link) }
    if let key { try text.set("radio", "key", key) }
    if let pinFile {
      try text.set("radio", "pin_file", pinFile)
      try text.remove("radio", "pin")
    }
    if let link, !link.hasPrefix("ble:") {
      try text.remove("radio", "pin_file")
      try text.remove("radio", "pin")
    }
    if let advertises, advertises != (text.flag("radio", "advert_when_new") ?? false) {
      try text.set("radio", "advert_when_new", advertises)
    }
    for upstream in upstreams {
      guard let place = text.upstreams.firstIndex(where: { $0.name.isExactly(upstream.name) }) else {
        try text.append(upstream.toml)
        continue
      }
      if !text.upstreams[place].url.isExactly(upstream.url) {
        // The other kind has another key for the file of its secret.
        try text.removeUpstream(place, upstream.isBroker ? "token_file" : "password_file")
        try text.setUpstream(place, "kind", upstream.kind)
        try text.setUpstream(place, "url", upstream.url)
      }
      for (key, value) in [("user", upstream.user), (upstream.tokenKey, upstream.tokenFile)] {
        guard let value else { continue }
        if value.isEmpty { try text.removeUpstream(place, key) } else { try text.setUpstream(place, key, value) }
      }
      if let allow = upstream.allow { try text.setUpstream(place, "allow", allow) }
      if let from = upstream.from { try text.setUpstream(place, "from", from) }
    }
    return text.text
  }

  /// An upstream without a given name is the configured one with the same URL, or a new one. It never replaces another.
  mutating func settleNames() {
    for place in upstreams.indices where !upstreams[place].isNamed {
      let same = existing?.upstreams.first { HTTPEndpoint.areOne($0.url, upstreams[place].url) }?.name
      upstreams[place].name = same ?? freeName(upstreams[place], besides: place)
    }
  }

  /// Refuses a second link to one hub, and the name of an added upstream.
  func checkRivals() throws {
    for upstream in upstreams {
      if added.contains(where: { $0.name.isExactly(upstream.name) }) {
        throw ValidationError(Self.isAdded(upstream.name))
      }
      if let rival = rival(of: upstream) { throw ValidationError("\(upstream.name): \(Self.twoLinks(rival))") }
    }
  }

  /// Refuses another server in the place of one if the options do not say what it gets: the old one's secret, user and rights are for its own server.
  func checkSuccessors() throws {
    guard let existing else { return }
    for upstream in upstreams {
      guard let place = existing.upstreams.firstIndex(where: { $0.name.isExactly(upstream.name) }) else { continue }
      let old = existing.upstreams[place].url
      if ServerURL.areOfOneServer(old, upstream.url) { continue }
      let keys = [
        ("--token-file", "FILE", upstream.tokenKey, upstream.tokenFile != nil),
        ("--user", "USER", "user", upstream.user != nil), ("--allow", "RIGHTS", "allow", upstream.allow != nil),
      ]
      let untold = keys.filter { !$0.3 && existing.has($0.2, ofUpstream: place) }
      guard !untold.isEmpty else { continue }
      let options = untold.map { "\($0.0) \(upstream.name)=\($0.1)" }.joined(separator: " ")
      throw ValidationError(
        "\(upstream.name) is \(old): another server does not get what that one has. Say what it gets (\(options)), or "
          + "choose another name. Nothing was changed")
    }
  }

  static func isAdded(_ name: String) -> String {
    "\(name) was added by `meshpost upstream add`: choose another name, or run `meshpost upstream remove \(name)` first"
  }

  static func twoLinks(_ rival: String) -> String {
    "\(rival) has a link to this hub already, which keeps one live link of a gateway"
  }

  /// Another upstream that has a link to the same hub.
  func rival(of upstream: Upstream) -> String? {
    upstream.isBroker ? nil : rival(at: upstream.url, besides: upstream.name)
  }

  /// An upstream that has a link to the hub at `url`.
  func rival(at url: String, besides name: String?) -> String? {
    let hubs =
      ((existing?.upstreams ?? []) + added).filter(\.hasLink).map { ($0.name, $0.url) }
      + upstreams.filter { !$0.isBroker }.map { ($0.name, $0.url) }
    return hubs.first { hub in
      name.map { hub.0.isExactly($0) } != true && HTTPEndpoint.areOne(hub.1, url)
    }?.0
  }

  /// The upstream's name, with a number if the name is taken.
  func freeName(_ upstream: Upstream, besides own: Int? = nil) -> String {
    let others = upstreams.indices.filter { $0 != own }.map { upstreams[$0].name }
    let taken = Set((existing?.upstreams ?? []).map(\.name) + added.map(\.name) + others)
    guard taken.contains(upstream.name) else { return upstream.name }
    let base = upstream.isBroker ? "broker" : "hub"
    var number = 2
    while taken.contains("\(base)\(number)") { number += 1 }
    return "\(base)\(number)"
  }

  /// Writes the configuration, with its owner and mode.
  private func write(_ text: String) throws {
    var facts = stat()
    let isThere = stat(config, &facts) == 0
    try OutputFile.write(text, to: config, isSecret: isThere && facts.st_mode & 0o044 == 0)
    guard isThere else { return }
    // Only root can change the owner; without root the file already has the right one.
    if geteuid() == 0 { _ = chown(config, facts.st_uid, facts.st_gid) }
    guard chmod(config, facts.st_mode & 0o777) == 0 else { throw Failure.file(config) }
  }

  var text: String {
    var text =
      "\(Self.mark). All keys are documented in /usr/share/meshpost/meshpostd.toml. After an edit, run\n"
    text +=
      "# `systemctl reload meshpost` (for [radio] and [store]: restart). Running setup again keeps everything that it is not told to change.\n\n"
    if let name { text += "[gateway]\nid = \(Self.quoted(name))\n\n" }
    text += "[radio]\nlink = \(Self.quoted(link ?? "auto:"))\n"
    if let key, !key.isEmpty { text += "key = \(Self.quoted(key))\n" }
    if advertises ?? true { text += "advert_when_new = true\n" }
    if let pinFile, !pinFile.isEmpty { text += "pin_file = \(Self.quoted(pinFile))\n" }
    return text + "\n" + upstreams.map(\.toml).joined()
  }

  /// A TOML string.
  static func quoted(_ text: String) -> String {
    let escaped = text.unicodeScalars.map { scalar -> String in
      switch scalar {
      case "\"": "\\\""
      case "\\": "\\\\"
      case _ where scalar.value < 0x20 || scalar.value == 0x7F:
        "\\u00" + (scalar.value < 16 ? "0" : "") + String(scalar.value, radix: 16)
      default: String(scalar)
      }
    }
    return "\"\(escaped.joined())\""
  }

  /// A TOML list of strings.
  static func quoted(_ texts: [String]) -> String { "[" + texts.map { quoted($0) }.joined(separator: ", ") + "]" }

  static func split(_ text: String) -> (name: String?, value: String) {
    let parts = text.pieces(at: "=", most: 2)
    guard parts.count == 2, !parts[0].has(":"), !parts[0].has("/") else { return (nil, text) }
    return (parts[0], parts[1])
  }

  /// Refuses a value for an unknown upstream: its name is mistyped.
  func checkUse(of texts: [String], as option: String) throws {
    let names = texts.map { Self.split($0).name }
    try GivenOnce.check(names.compactMap(\.self), option)
    if let stray = names.compactMap(\.self).first(where: { name in !upstreams.contains { $0.name.isExactly(name) } }) {
      throw ValidationError("\(option) \(stray)=…: no --upstream is called \(stray)")
    }
    guard names.filter({ $0 == nil }).count <= (upstreams.isEmpty ? 0 : 1) else {
      throw ValidationError("\(option): only the one for the first --upstream may lack NAME=")
    }
  }

  static func of(_ name: String, isFirst: Bool, _ texts: [String]) -> String? {
    let pairs = texts.map(split)
    return pairs.first { $0.name?.isExactly(name) == true }?.value
      ?? (isFirst ? pairs.first { $0.name == nil }?.value : nil)
  }
}
