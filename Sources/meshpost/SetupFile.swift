// SPDX-License-Identifier: MIT

import ArgumentParser
import Glibc

/// What `meshpost setup` writes: the configuration, and secrets beside it.
extension Setup {
  struct Upstream {
    var name: String
    var url: String
    var user: String?
    /// A location, or a credential's name.
    var tokenFile: String?

    var isBroker: Bool { ["mqtt:", "mqtts:", "ws:", "wss:"].contains { url.hasPrefix($0) } }

    init(name: String, url: String, user: String? = nil, tokenFile: String? = nil) {
      (self.name, self.url, self.user, self.tokenFile) = (name, url, user, tokenFile)
    }

    /// `text`: `[NAME=]URL`; `tokens` and `users`: `[NAME=]…`, without a name for the first.
    init(_ text: String, number: Int, tokens: [String], users: [String]) throws {
      let (name, url) = Setup.split(text)
      self.url = url
      self.name = name ?? (number == 1 ? "hub" : "hub\(number)")
      if name == nil, isBroker { self.name = number == 1 ? "broker" : "broker\(number)" }
      guard url.contains("://") else { throw ValidationError("--upstream \(text): [NAME=]URL is wanted") }
      tokenFile = Setup.of(self.name, isFirst: number == 1, tokens)
      user = Setup.of(self.name, isFirst: number == 1, users)
    }

    var toml: String {
      var lines = [
        "[[upstream]]", "name = \(Setup.quoted(name))", "kind = \"\(isBroker ? "mqtt" : "hub")\"",
        "url = \(Setup.quoted(url))",
      ]
      if let user { lines.append("user = \(Setup.quoted(user))") }
      if let tokenFile { lines.append("\(isBroker ? "password_file" : "token_file") = \(Setup.quoted(tokenFile))") }
      return lines.joined(separator: "\n") + "\n\n"
    }
  }

  /// Where secrets are kept that were typed in or named by file.
  private var credentials: String { Folder.of(config) + "/credentials" }

  /// A secret, for root alone; systemd hands it to the gateway. Returns its name.
  func keep(_ secret: String, as name: String) throws -> String {
    try Folder.make(credentials)
    let file = "\(credentials)/\(name)"
    try OutputFile.write(secret + "\n", to: file, isSecret: true)
    return name
  }

  /// Secrets that were named by file are copied to where the service finds them.
  private func adopted(_ file: String?, as name: String) throws -> String? {
    guard let file, file.contains("/"), !file.hasPrefix(credentials) else { return file }
    guard let line = try InputFile.firstLine(file) else {
      throw Failure.say("\(file): cannot be read, or its first line is empty", EX_NOINPUT)
    }
    return try keep(line, as: name)
  }

  mutating func writeConfiguration() throws {
    for place in upstreams.indices {
      upstreams[place].tokenFile = try adopted(upstreams[place].tokenFile, as: "\(upstreams[place].name).token")
    }
    pinFile = try adopted(pinFile, as: "radio.pin")
    if let old = try InputFile.text(config), !Self.isUntouched(old) {
      let kept = "\(config).before-\(time(nil))"
      guard rename(config, kept) == 0 else { throw Failure.file(kept) }
      print("what was there is kept as \(kept)")
    }
    try OutputFile.write(text, to: config)
    print("\(config) is written")
  }

  var text: String {
    var text =
      "\(Self.mark). All keys are explained in /usr/share/meshpost/meshpostd.toml; change what you like, then\n"
    text +=
      "# `systemctl reload meshpostd` (radio, store: restart). A further setup keeps what you have changed under another name.\n\n"
    if let name { text += "[gateway]\nid = \(Self.quoted(name))\n\n" }
    text += "[radio]\nlink = \(Self.quoted(link))\n"
    if let key { text += "key = \(Self.quoted(key))\n" }
    if advertises { text += "advert_when_new = true\n" }
    if let pinFile { text += "pin_file = \(Self.quoted(pinFile))\n" }
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

  static func split(_ text: String) -> (name: String?, value: String) {
    let parts = text.split(separator: "=", maxSplits: 1).map(String.init)
    guard parts.count == 2, !parts[0].contains(":"), !parts[0].contains("/") else { return (nil, text) }
    return (parts[0], parts[1])
  }

  static func of(_ name: String, isFirst: Bool, _ texts: [String]) -> String? {
    let pairs = texts.map(split)
    return pairs.first { $0.name == name }?.value ?? (isFirst ? pairs.first { $0.name == nil }?.value : nil)
  }
}
