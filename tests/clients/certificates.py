"""Certificates for tests: an authority, and what it signs."""

import datetime
import ipaddress
import os

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """Signs certificates. Its own certificate is in the file `certificate`."""

    def __init__(self, folder, name="authority"):
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        signed = self._sign(self._name, self._key.public_key(), 100, [(constraints, True)])
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def _sign(self, name, public_key, days, extensions):
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(public_key)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - DAY).not_valid_after(now + days * DAY)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())

    def issue(self, name, days=10, ca=False):
        """Writes `<name>.crt` and `<name>.key`, each at once, as a tool that renews certificates does."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        constraints = x509.BasicConstraints(ca=ca, path_length=None)
        extensions = [(x509.SubjectAlternativeName(names), False), (constraints, True)]
        certificate = self._sign(_name(name), key.public_key(), days, extensions)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        issued = Issued(self._folder / f"{name}.crt", self._folder / f"{name}.key", certificate)
        replace(issued.key, private)
        replace(issued.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        return issued

    def revocation_list(self, *revoked, number=1):
        """A list with these certificates, in PEM form."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - DAY).next_update(now + 10 * DAY)
        builder = builder.add_extension(x509.CRLNumber(number), critical=False)
        for issued in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(issued.serial).revocation_date(now - DAY)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Issued:
    """The files of a certificate and its key."""

    def __init__(self, certificate, key, parsed):
        self.certificate = certificate
        self.key = key
        self.serial = parsed.serial_number
        self.expiry = parsed.not_valid_after_utc.timestamp()


def replace(path, content):
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)
