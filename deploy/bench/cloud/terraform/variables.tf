variable "region" {
  description = "AWS region."
  type        = string
  default     = "eu-central-1"
}

variable "zone" {
  description = "Letter of the one availability zone that holds all hosts."
  type        = string
  default     = "a"
}

variable "name" {
  description = "Name and tag of everything that is made."
  type        = string
  default     = "pgshoal-bench"
}

variable "ssh_cidr" {
  description = "The one network that may reach the hosts, by SSH: your own address with /32."
  type        = string

  validation {
    condition     = can(cidrhost(var.ssh_cidr, 0)) && tonumber(split("/", var.ssh_cidr)[1]) >= 24
    error_message = "A network of at most 256 addresses is wanted, such as 203.0.113.7/32."
  }
}

variable "public_key" {
  description = "Text of the SSH public key of whoever runs the experiment."
  type        = string
}

variable "instance_types" {
  description = "Instance type of each host."
  type        = map(string)
  default = {
    load     = "c7i.4xlarge"
    pooler   = "c7i.4xlarge"
    database = "c7i.4xlarge"
  }

  validation {
    condition     = toset(keys(var.instance_types)) == toset(["load", "pooler", "database"])
    error_message = "Exactly load, pooler and database are wanted."
  }
}

variable "hours" {
  description = "After so many hours each host ends itself, and is gone: nothing runs on when it is forgotten."
  type        = number
  default     = 6

  validation {
    condition     = var.hours > 0 && var.hours <= 48
    error_message = "From 1 to 48 hours."
  }
}
